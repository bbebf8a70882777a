"""google-research/bert's run_squad.py at work: its features, its predictions.

    python original_squad.py CHECKOUT JOB

JOB is JSON: data_file, vocab_file, do_lower_case, version_2_with_negative, is_training,
max_seq_length, doc_stride, max_query_length, and what is to be made of the features:

records    a TFRecord file to write them to, as its main() does; timed, with the reading
features   a file to write them to, a JSON object a line
logits     an .npz of start_logits and end_logits [windows, max_seq_length] to write
           predictions from, into output_dir; with n_best_size, max_answer_length,
           null_score_diff_threshold, and skipped, ids of questions to leave out

It prints JSON: how many features there are, and the seconds of processor time that it
took, on one core.

The code runs as it is, on today's TensorFlow: compat.v1 has all the names that it uses
here.
"""

import functools
import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf


def convert(original: Any, job: dict[str, Any], take: Callable) -> list:
    """Reads the file and makes its features; its examples."""
    examples = original.read_squad_examples(job["data_file"], job["is_training"])
    original.convert_examples_to_features(
        examples=examples,
        tokenizer=original.tokenization.FullTokenizer(
            job["vocab_file"], job["do_lower_case"]
        ),
        max_seq_length=job["max_seq_length"],
        doc_stride=job["doc_stride"],
        max_query_length=job["max_query_length"],
        is_training=job["is_training"],
        output_fn=take,
    )
    return examples


def write_records(original: Any, job: dict[str, Any]) -> dict[str, Any]:
    """Features into records."""
    began = time.process_time()
    writer = original.FeatureWriter(job["records"], job["is_training"])
    convert(original, job, writer.process_feature)
    writer.close()
    return {"features": writer.num_features, "seconds": time.process_time() - began}


def write_features(original: Any, job: dict[str, Any]) -> dict[str, Any]:
    """Features as they are, but their tokens, which their ids tell."""
    number = 0

    def write(file: Any, feature: Any) -> None:
        nonlocal number
        number += 1
        values = dict(vars(feature))
        del values["tokens"]
        for name in ("token_to_orig_map", "token_is_max_context"):
            values[name] = list(values[name].items())
        file.write(json.dumps(values) + "\n")

    began = time.process_time()
    with open(job["features"], "w") as file:
        examples = convert(original, job, functools.partial(write, file))
    return {
        "features": number,
        "seconds": time.process_time() - began,
        "question_ids": [example.qas_id for example in examples],
    }


def write_predictions(original: Any, job: dict[str, Any]) -> dict[str, Any]:
    """Predictions from logits."""
    features: list = []
    examples = convert(original, job, features.append)
    logits = np.load(job["logits"])
    results = [
        original.RawResult(feature.unique_id, start.tolist(), end.tolist())
        for feature, start, end in zip(
            features, logits["start_logits"], logits["end_logits"], strict=True
        )
    ]
    skipped = set(job["skipped"])
    numbers = [n for n, one in enumerate(examples) if one.qas_id not in skipped]
    number_of = {old: new for new, old in enumerate(numbers)}
    features = [one for one in features if one.example_index in number_of]
    for feature in features:
        feature.example_index = number_of[feature.example_index]
    paths = [
        os.path.join(job["output_dir"], f"{name}.json")
        for name in ("predictions", "nbest_predictions", "null_odds")
    ]
    began = time.process_time()
    original.write_predictions(
        [examples[number] for number in numbers],
        features,
        results,
        job["n_best_size"],
        job["max_answer_length"],
        job["do_lower_case"],
        *paths,
    )
    return {"features": len(results), "seconds": time.process_time() - began}


def main(checkout: str, job: dict[str, Any]) -> None:
    sys.modules["tensorflow"] = tf
    sys.path.insert(0, checkout)
    import run_squad as original

    settings = {
        name: str(job[name])
        for name in ("version_2_with_negative", "null_score_diff_threshold")
        if name in job
    }
    tf.flags.FLAGS(["run_squad", *(f"--{name}={settings[name]}" for name in settings)])
    tf.logging.set_verbosity(tf.logging.ERROR)
    if "records" in job:
        done = write_records(original, job)
    elif "features" in job:
        done = write_features(original, job)
    else:
        done = write_predictions(original, job)
    print(json.dumps(done))


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
