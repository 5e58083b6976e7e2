// Opens a file the way the Netron application does, reader choice included, and prints what it would show as JSON.
// Usage: node netron_nodes.mjs NETRON_FOLDER FILE
import { readFileSync } from 'node:fs';
import { basename, join, resolve } from 'node:path';
import { pathToFileURL } from 'node:url';

const [folder, file] = process.argv.slice(2);
const load = (name) => import(pathToFileURL(join(resolve(folder), name)).href);
const resource = async (name) => readFileSync(join(folder, name), 'utf-8');
const fail = (error) => { throw error; };

globalThis.window = { addEventListener() {} };
const base = await load('base.js');
const view = await load('view.js');
const host = {
    require: (id) => load(`${id.replace(/^\.\//, '')}.js`),
    request: resource,
    asset: resource,
    exception: fail,
    event() {}
};
const stream = new base.BinaryStream(new Uint8Array(readFileSync(file)));
const identifier = basename(file);
const context = { ...host, identifier, stream, entries: new Map([[identifier, stream]]), error: fail };
const model = await new view.ModelFactoryService(host).open(context);

const value = (v) => ({
    name: v.name,
    type: v.type ? v.type.toString() : null,
    data: v.initializer ? new base.Tensor(v.initializer).toString().replace(/\s+/g, '') : null
});
const edges = (list) => list.flatMap((argument) => argument.value.map(value));
const node = (n) => ({
    name: n.name,
    type: n.type.name,
    inputs: edges(n.inputs),
    outputs: edges(n.outputs),
    attributes: Object.fromEntries(n.attributes.map((a) => [a.name, a.value]))
});
const graphs = model.modules.map((graph) => ({ name: graph.name, nodes: graph.nodes.map(node) }));
console.log(JSON.stringify({ format: model.format, graphs }, (_, v) => (typeof v === 'bigint' ? Number(v) : v)));
