// The arena: a rectangle for each storage, from the first task that touches it to the last. tasks: how many there are.
function drawArena(canvas, blocks, arena, tasks, height, kept, name) {
  const [c, w, h] = fit(canvas, height), left = 66, bottom = h - 30, n = Math.max(1, tasks), all = Math.max(1, arena);
  const x = t => left + t / n * (w - left - 8), y = b => bottom - b / all * (bottom - 12), unit = all >= 1e6 ? [1e6, "MB"] : [1e3, "kB"];
  for (let i = 0; i <= 4; i++) {
    const v = all * i / 4; c.fillStyle = style("--dim"); c.textAlign = "right";
    c.fillText((v / unit[0]).toFixed(v / unit[0] >= 100 || !v ? 0 : 2) + " " + unit[1], left - 6, y(v) + 4); c.beginPath(); c.moveTo(left, y(v)); c.lineTo(w - 8, y(v)); c.stroke();
  }
  c.textAlign = "center"; for (let i = 0; i <= 4; i++) c.fillText(Math.round(n * i / 4), Math.min(x(n * i / 4), w - 16), h - 14);
  c.textAlign = "right"; c.fillText("task", w - 8, h - 2); c.textAlign = "left";
  blocks.forEach((b, i) => {
    const on = kept < 0 || (b.first <= kept && kept <= b.last), a = x(b.first), width = Math.max(1, x(b.last + 1) - a - 0.5), top = y(b.offset + b.bytes), tall = Math.max(1, y(b.offset) - top - 0.5);
    c.globalAlpha = on ? 0.85 : 0.2; c.fillStyle = hue(i, 45, 58); c.fillRect(a, top, width, tall);
    if (tall > 15 && width > 60) { c.globalAlpha = on ? 1 : 0.3; c.fillStyle = "#fff"; c.fillText(clipped(c, name(b), width - 8), a + 4, top + Math.min(tall / 2 + 4, 14)); }
  });
  c.globalAlpha = 1;
  return (px, py) => blocks.find(b => px >= x(b.first) && px <= x(b.last + 1) && py <= y(b.offset) && py >= y(b.offset + b.bytes));
}
