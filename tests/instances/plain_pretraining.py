"""The recipe of pre-training instances once more: plain, slow, on strings.

Written from the description of the procedure, to compare with: random draws are written
as `randint`, tokens are popped one by one, segments are put back by moving an index.
"""

import random

import numpy as np

from bert_tf.instances.creation import Documents, starts


def plain_instances(documents, vocabulary_tokens, settings):
    """Instances as dicts of strings, from documents of sentences of token strings."""
    rng = random.Random(settings["random_seed"])
    pool = [list(document) for document in documents]
    rng.shuffle(pool)
    words = list(dict.fromkeys(vocabulary_tokens))
    result = []
    for _ in range(settings["dupe_factor"]):
        for own in range(len(pool)):
            result += one_document(pool, own, words, settings, rng)
    rng.shuffle(result)
    return result


def one_document(pool, own, words, settings, rng):
    room = settings["max_seq_length"] - 3
    goal = room
    if rng.random() < settings["short_seq_prob"]:
        goal = rng.randint(2, room)
    instances = []
    gathered = []
    index = 0
    while index < len(pool[own]):
        gathered.append(pool[own][index])
        is_last = index == len(pool[own]) - 1
        if is_last or sum(map(len, gathered)) >= goal:
            cut = rng.randint(1, len(gathered) - 1) if len(gathered) > 1 else 1
            a = [token for sentence in gathered[:cut] for token in sentence]
            b = [token for sentence in gathered[cut:] for token in sentence]
            is_random = len(gathered) == 1
            if not is_random:
                is_random = rng.random() < 0.5
            if is_random:
                b = random_b(pool, own, goal - len(a), rng)
                index -= len(gathered) - cut
            while len(a) + len(b) > room:
                longer = a if len(a) > len(b) else b
                longer.pop(0 if rng.random() < 0.5 else -1)
            tokens = ["[CLS]", *a, "[SEP]", *b, "[SEP]"]
            shown, positions, labels = mask(tokens, words, settings, rng)
            instances.append(
                {
                    "tokens": shown,
                    "segment_ids": [0] * (len(a) + 2) + [1] * (len(b) + 1),
                    "positions": positions,
                    "labels": labels,
                    "is_random_next": is_random,
                }
            )
            gathered = []
        index += 1
    return instances


def random_b(pool, own, goal, rng):
    tries = 0
    while True:
        other = rng.randint(0, len(pool) - 1)
        tries += 1
        if other != own or tries == 10:
            break
    begin = rng.randint(0, len(pool[other]) - 1)
    b = list(pool[other][begin])
    for sentence in pool[other][begin + 1 :]:
        if len(b) >= goal:
            break
        b += sentence
    return b


def mask(tokens, words, settings, rng):
    groups = []
    for position, token in enumerate(tokens):
        if token in ("[CLS]", "[SEP]"):
            continue
        if settings["do_whole_word_mask"] and groups and token.startswith("##"):
            groups[-1].append(position)
        else:
            groups.append([position])
    rng.shuffle(groups)
    wanted = round(len(tokens) * settings["masked_lm_prob"])
    wanted = min(settings["max_predictions_per_seq"], max(1, wanted))
    shown = list(tokens)
    chosen = {}
    for group in groups:
        if len(chosen) + len(group) > wanted:
            continue
        for position in group:
            chosen[position] = tokens[position]
            if rng.random() < 0.8:
                shown[position] = "[MASK]"
            elif rng.random() < 0.5:
                pass
            else:
                shown[position] = words[rng.randint(0, len(words) - 1)]
    positions = sorted(chosen)
    return shown, positions, [chosen[position] for position in positions]


def mask_spans(tokens, words, settings, rng):
    """Spans of whole words, as SpanBERT's, with draws in the order of the package."""
    groups, may_join = [], False
    for position, token in enumerate(tokens):
        if token in ("[CLS]", "[SEP]"):
            may_join = False
        elif may_join and token.startswith("##"):
            groups[-1].append(position)
        else:
            groups.append([position])
            may_join = True
    order = list(range(len(groups)))
    rng.shuffle(order)
    wanted = round(len(tokens) * settings["masked_lm_prob"])
    wanted = min(settings["max_predictions_per_seq"], max(1, wanted))
    shares = np.cumsum(0.2 * 0.8 ** np.arange(10)) / (1 - 0.8**10)
    shown = list(tokens)
    chosen = {}
    for first in order:
        if len(chosen) == wanted:
            break
        length = 1 + int((shares <= rng.random()).sum())
        treatment = "mask" if rng.random() < settings["mask_rate"] else ""
        rest = 1 - settings["random_rate"] / (1 - settings["mask_rate"])
        if not treatment:
            treatment = "keep" if rng.random() < rest else "random"
        previous = groups[first][0] - 1
        for group in groups[first : first + length]:
            is_free = group[0] == previous + 1 and group[0] not in chosen
            if not is_free or len(chosen) + len(group) > wanted:
                break
            for position in group:
                chosen[position] = tokens[position]
                if treatment == "mask":
                    shown[position] = "[MASK]"
                elif treatment == "random":
                    shown[position] = words[rng.randint(0, len(words) - 1)]
            previous = group[-1]
    positions = sorted(chosen)
    return shown, positions, [chosen[position] for position in positions]


def as_record(plain, vocabulary_tokens, length, slots):
    """An instance as its record's features."""
    ids = {token: number for number, token in enumerate(vocabulary_tokens)}

    def padded(values, size):
        return list(values) + [0] * (size - len(values))

    return {
        "input_ids": padded([ids[token] for token in plain["tokens"]], length),
        "input_mask": padded([1] * len(plain["tokens"]), length),
        "segment_ids": padded(plain["segment_ids"], length),
        "masked_lm_positions": padded(plain["positions"], slots),
        "masked_lm_ids": padded([ids[token] for token in plain["labels"]], slots),
        "masked_lm_weights": padded([1.0] * len(plain["labels"]), slots),
        "next_sentence_labels": [int(plain["is_random_next"])],
    }


def documents_of(documents, dtype=np.int32):
    """`Documents` of lists of sentences, which are lists of ids."""
    sentences = [sentence for document in documents for sentence in document]
    return Documents(
        np.array([token for ids in sentences for token in ids], dtype),
        starts([len(ids) for ids in sentences]),
        starts([len(document) for document in documents]),
    )
