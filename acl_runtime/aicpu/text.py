"""N-grams: TfIdfVectorizer."""

from __future__ import annotations

import numpy as np

from acl_runtime.aicpu.registry import Array, Attrs, Inputs, implementation


@implementation("TfIdfVectorizer")
def _tf_idf_vectorizer(inputs: Inputs, attrs: Attrs, _: int) -> Array:
    array = np.asarray(inputs[0])
    pool = list(attrs.get("pool_strings") or attrs.get("pool_int64s") or ())
    starts = [*attrs["ngram_counts"], len(pool)]
    places: dict[tuple[object, ...], int] = {}
    for size in range(1, len(starts)):
        first, last = starts[size - 1], starts[size]
        for at in range(first, last, size):
            places[tuple(pool[at : at + size])] = len(places)
    columns = list(attrs["ngram_indexes"])
    counts = np.zeros((*array.shape[:-1], max(columns) + 1), np.float32)
    weights = np.asarray(attrs.get("weights") or np.ones(len(columns)), np.float32)
    factors = np.ones(counts.shape[-1], np.float32)
    factors[columns] = weights
    longest = array.shape[-1]
    least, most, skips = attrs["min_gram_length"], min(attrs["max_gram_length"], longest), attrs["max_skip_count"]
    # Words on their own know no skip; what spans more words than there are is never found.
    grams = [(1, 1)] if least == 1 else []
    for size in range(max(least, 2), most + 1):
        grams += [(size, step) for step in range(1, min(skips + 1, (longest - 1) // (size - 1)) + 1)]
    for row, count in zip(array.reshape(-1, array.shape[-1]), counts.reshape(-1, counts.shape[-1]), strict=True):
        words = row.tolist()
        for size, step in grams:
            for start in range(len(words) - (size - 1) * step):
                found = places.get(tuple(words[start : start + (size - 1) * step + 1 : step]))
                if found is not None:
                    count[columns[found]] += 1
    mode = attrs["mode"]
    if mode == "TF":
        return counts
    return (counts if mode == "TFIDF" else np.minimum(counts, 1)) * factors
