"""The golden outputs: what is run, and what is kept of it.

Each case is a function of the folder that `inputs.write` has filled, and of a folder
for its outputs; it returns what NAME.json holds. Everything goes through the commands,
so that the package's modules may be moved. Of a flag given twice, the second counts.
"""

import contextlib
import functools
import glob
import hashlib
import json
import os
import pathlib
import shutil
from unittest import mock

import numpy as np

import bert_tf
from bert_tf.records.batching import ExampleTable
from tests.golden import commands, outputs
from tests.golden.commands import run
from tests.golden.inputs import HEADS, WORDS

RUNS = os.path.join(os.path.dirname(__file__), "runs")
# Low enough for the last bits of floats not to grow from step to step; where they do
# not, a higher rate shows smaller faults.
_RATE, _HIGHER_RATE = "--learning_rate=3e-4", "--learning_rate=1e-3"

CASES = {}
SLOW = set()
EXACT = {"flags"}


def case(function=None, *, slow=False):
    """Registers a case by its name."""
    if function is None:
        return lambda function: case(function, slow=slow)
    CASES[function.__name__] = function
    if slow:
        SLOW.add(function.__name__)
    return function


def _model(inputs):
    return f"--init_checkpoint={inputs}/release/bert_model.ckpt"


def _training(inputs):
    return (
        f"{_model(inputs)} --do_train --train_batch_size=8 --num_train_epochs=4"
        f" {_RATE} --log_steps=1 --max_seq_length=32"
    )


# Commands, flags, records.


@case
def flags(inputs, folder):
    """Every command's flags with their defaults, and the values that they allow."""
    del inputs, folder
    return {
        name: {"defaults": commands.defaults(name), "choices": commands.choices(name)}
        for name in commands.names()
    }


def _records(inputs, output, more="", text="*"):
    run(
        f"create_pretraining_data --vocab_file={inputs}/release/vocab.txt"
        f" --output_file={output} --input_file={inputs}/corpus/{text}.txt"
        " --max_seq_length=32 --max_predictions_per_seq=5 --dupe_factor=2"
        f" --num_workers=1 {more}"
    )
    return output


@case
def records(inputs, folder):
    """The records of pre-training."""
    ways = {
        "static": "",
        "whole_word": "--do_whole_word_mask",
        "dynamic": "--masking=dynamic",
        "sop": "--pairs=sop",
        "none": "--pairs=none",
        "exact": "--nsp_labels=exact",
        "split": "--split_sentences --short_seq_prob=0.5 --random_seed=1",
    }
    found = {
        name: outputs.records(_records(inputs, f"{folder}/{name}.tfrecord", more))
        for name, more in ways.items()
    }
    _records(inputs, f"{folder}/sharded.tfrecord", "--num_shards=3")
    shards = sorted(glob.glob(f"{folder}/sharded.tfrecord-*-of-*"))
    found["sharded"] = {
        os.path.basename(path): outputs.records(path) for path in shards
    }
    files = [f"{folder}/dealt{number}.tfrecord" for number in range(2)]
    _records(inputs, ",".join(files))
    found["dealt"] = [outputs.records(path) for path in files]
    return found


def _packed(inputs, folder):
    return _records(inputs, f"{folder}/packed.tfrecord", "--packed_length=64")


@case
def records_packed(inputs, folder):
    """Rows of several records."""
    return outputs.records(_packed(inputs, folder))


@case
def vocabulary(inputs, folder):
    """What is learned from the corpus."""
    path = f"{folder}/vocab.txt"
    run(
        f"learn_vocabulary --input_file={inputs}/corpus/*.txt --output_file={path}"
        " --vocab_size=80 --num_workers=1"
    )
    return {"vocab.txt": outputs.lines(path)}


# Pre-training.


def _pretrain(inputs, folder, source, more=""):
    run(
        f"run_pretraining --input_file={source} --output_dir={folder}/run"
        f" {_model(inputs)} --do_train --do_eval --num_train_steps=20"
        " --num_warmup_steps=5 --train_batch_size=8 --max_eval_steps=3"
        f" {_RATE} --log_steps=1 {more}"
    )
    return outputs.run(f"{folder}/run", "eval_results.txt")


@case
def pretraining(inputs, folder):
    """Of static records, evaluated."""
    path = _records(inputs, f"{folder}/static.tfrecord")
    return _pretrain(inputs, folder, path, _HIGHER_RATE)


@case(slow=True)
def pretraining_dynamic(inputs, folder):
    """Masked as they are read."""
    path = _records(inputs, f"{folder}/dynamic.tfrecord", "--masking=dynamic")
    return _pretrain(inputs, folder, path, "--masking_unit=span")


@case(slow=True)
def pretraining_packed(inputs, folder):
    """Of several sequences in a row."""
    return _pretrain(inputs, folder, _packed(inputs, folder))


@case(slow=True)
def pretraining_none(inputs, folder):
    """Without pairs, accumulated, with LAMB."""
    path = _records(inputs, f"{folder}/none.tfrecord", "--pairs=none")
    more = "--optimizer=lamb --gradient_accumulation_steps=2"
    return _pretrain(inputs, folder, path, more)


# Classification.

_CLASSIFIER_FILES = (
    "eval_results.txt",
    "dev_predictions.tsv",
    "dev_mistakes.tsv",
    "test_predictions.tsv",
    "test_results.tsv",
)


def _texts(folder, names):
    return {name: outputs.lines(folder, name) for name in names}


def _runs(folder):
    """What became of each run of a selection."""
    rows = [
        json.loads(line) for line in outputs.lines(folder, "selection.jsonl") if line
    ]
    kept = "name", "status", "scores", "step"
    return [{name: row[name] for name in kept} for row in rows if "name" in row]


def _run_classifier(inputs, output, kind, more):
    run(
        f"run_classifier --task_name=tsv --data_dir={inputs}/tables/{kind}"
        f" --output_dir={output} --do_eval --noplots {_training(inputs)} {more}"
    )


def _classify(inputs, folder, kind, more):
    _run_classifier(inputs, f"{folder}/run", kind, f"--do_predict {more}")
    return outputs.run(f"{folder}/run", *_CLASSIFIER_FILES)


@case
def classifier(inputs, folder):
    """Pairs of texts, three labels."""
    more = f"--text_b_column=text_b {_HIGHER_RATE}"
    return _classify(inputs, folder, "classes", more)


@case(slow=True)
def classifier_regression(inputs, folder):
    """A number."""
    return _classify(inputs, folder, "numbers", "--regression")


@case(slow=True)
def classifier_several(inputs, folder):
    """Any number of labels."""
    more = "--several_labels --eval_steps=10 --long_text=window"
    return _classify(inputs, folder, "several", more)


@case(slow=True)
def classifier_parts(inputs, folder):
    """Of whose weights some are trained, or some are new."""
    ways = {
        "lora": "--lora_rank=2",
        "adapters": "--adapter_size=4 --train_pooler",
        "mixture": "--layer_mixture --reinitialize_layers=1",
        "rates": "--frozen_layers=embeddings --layerwise_learning_rate_decay=0.8",
    }
    found = {}
    for name, more in ways.items():
        more += " --text_b_column=text_b --num_train_epochs=2"
        _run_classifier(inputs, f"{folder}/{name}", "classes", more)
        found[name] = outputs.run(f"{folder}/{name}", "eval_results.txt")
    return found


@case(slow=True)
def classifier_choice(inputs, folder):
    """The best of several runs."""
    output = f"{folder}/run"
    run(
        f"run_classifier --task_name=tsv --data_dir={inputs}/tables/classes"
        f" --text_b_column=text_b --output_dir={output} --learning_rates=1e-3,1e-4"
        " --stop_early --stop_early_at=0.5 --stop_early_keep=1 --do_eval --noplots"
        f" {_training(inputs).replace(_RATE, '')}"
    )
    return {"runs": _runs(output), **_texts(output, _CLASSIFIER_FILES[:3])}


@case(slow=True)
def glue(inputs, folder):
    """Two of its tasks, without a submission."""
    output = f"{folder}/run"
    run(
        f"run_glue --tasks=RTE,CoLA --glue_dir={inputs}/glue --output_dir={output}"
        " --nodo_predict --noplots --learning_rates=1e-3,5e-4 --train_batch_size=8"
        f" --num_train_epochs=2 --max_seq_length=32 {_model(inputs)}"
    )
    tasks = outputs.values(output, "glue.json")["tasks"]
    kept = "scores", "metric", "run", "restarts", "num_runs", "num_failed"
    return {
        task: {
            **{name: tasks[task][name] for name in kept},
            "runs": _runs(f"{output}/{task}"),
            **_texts(f"{output}/{task}", ["dev_predictions.tsv"]),
        }
        for task in tasks
    }


# SQuAD.


@contextlib.contextmanager
def _seen_blocks():
    """A list of the blocks of records that are made."""
    seen, make = [], ExampleTable.__init__

    def kept(table, blocks, spec, made_from=None):
        blocks = list(blocks)
        if made_from is not None:
            seen.extend(blocks)
        make(table, blocks, spec, made_from)

    with mock.patch.object(ExampleTable, "__init__", kept):
        yield seen


def _squad_windows(blocks):
    """What a run of SQuAD was trained on."""
    digest, counts = hashlib.sha256(), {"windows": 0, "tokens": 0, "with an answer": 0}
    first = None
    for block in blocks:
        for row in range(len(block["input_ids"])):
            window = {name: block[name][row].tolist() for name in sorted(block)}
            first = first or window
            digest.update(json.dumps(window, sort_keys=True).encode())
            counts["windows"] += 1
            counts["tokens"] += sum(window["input_mask"])
            counts["with an answer"] += window["start_positions"] != [0]
    return {**counts, "first": first, "sha256": digest.hexdigest()}


_ANSWER_FILES = ["predictions.json", "nbest_predictions.json"]


def _run_squad(inputs, output, version, more):
    """Runs it; the names of the files of its predictions."""
    is_2 = version == "2.0"
    run(
        f"run_squad --do_predict --predict_file={inputs}/squad/dev-v{version}.json"
        f" --output_dir={output} --version_2_with_negative={is_2} --doc_stride=8"
        " --max_query_length=8 --n_best_size=5 --max_answer_length=8 --noplots"
        f" --max_seq_length=32 {more}"
    )
    return ["eval_results.txt", *_ANSWER_FILES, *["null_odds.json"] * is_2]


def _squad(inputs, folder, version, more):
    more = f"{_training(inputs)} {more}"
    with _seen_blocks() as blocks:
        train_file = f"--train_file={inputs}/squad/train-v{version}.json"
        names = _run_squad(inputs, f"{folder}/run", version, f"{train_file} {more}")
    return {**outputs.run(f"{folder}/run", *names), "windows": _squad_windows(blocks)}


@case(slow=True)
def squad_1(inputs, folder):
    """SQuAD 1.1."""
    return _squad(inputs, folder, "1.1", "--num_train_epochs=2")


@case
def squad_2(inputs, folder):
    """SQuAD 2.0."""
    return _squad(inputs, folder, "2.0", "--num_train_epochs=3 --length_buckets=1")


@case
def squad_predictions(inputs, folder):
    """Of a model that is not trained, and what is made of predictions."""
    model = f"{inputs}/heads/span"
    found = {}
    for version, text in (
        ("1.1", "alignment"),
        ("2.0", "alignment"),
        ("2.0", "offsets"),
    ):
        output = f"{folder}/{version}-{text}"
        is_2 = version == "2.0"
        more = (
            f"--init_checkpoint={model}/bert_model.ckpt --answer_text={text}"
            f" --find_null_threshold={is_2 and text == 'offsets'}"
        )
        names = _run_squad(inputs, output, version, more)
        odds = f"--na_prob_file={output}/null_odds.json" if is_2 else ""
        scores = run(
            f"evaluate_squad {odds} {inputs}/squad/dev-v{version}.json"
            f" {output}/predictions.json"
        )
        found[f"{version} {text}"] = {
            **_texts(output, names),
            "evaluate_squad": scores.split("\n"),
        }
    both = f"{folder}/ensemble"
    _shift_odds(f"{folder}/2.0-offsets", f"{folder}/shifted")
    scores = run(
        f"ensemble_squad --prediction_dirs={folder}/2.0-alignment,{folder}/shifted"
        f" --output_dir={both} --predict_file={inputs}/squad/dev-v2.0.json"
        " --version_2_with_negative --n_best_size=5"
    )
    names = [*_ANSWER_FILES, "null_odds.json"]
    found["ensemble"] = {"printed": scores.split("\n"), **_texts(both, names)}
    found["answer"] = run(
        f"answer --checkpoint={model} --context_file={inputs}/texts/context.txt"
        " --max_seq_length=32 --doc_stride=8 --max_query_length=8 --top_k=2"
        f" '{WORDS[0]} {WORDS[1]}?' '{WORDS[2]} {WORDS[3]} {WORDS[4]}?'"
    ).split("\n")
    return found


def _shift_odds(folder, other):
    """Copies a run's predictions as those of another model that answers more often."""
    os.makedirs(other)
    for name in _ANSWER_FILES:
        shutil.copy(f"{folder}/{name}", other)
    odds = {
        name: odd - 3.0
        for name, odd in outputs.values(folder, "null_odds.json").items()
    }
    with open(f"{other}/null_odds.json", "w") as file:
        json.dump(odds, file)


# Choices, words.


@case
def swag(inputs, folder):
    """Four endings."""
    output = f"{folder}/run"
    run(
        f"run_swag --do_eval --do_predict --train_file={inputs}/swag/train.csv"
        f" --dev_file={inputs}/swag/val.csv --test_file={inputs}/swag/test.csv"
        f" --output_dir={output} {_training(inputs)} --train_batch_size=4"
        f" {_HIGHER_RATE}"
    )
    names = "eval_results.txt", "dev_predictions.csv", "swag_predictions.csv"
    return outputs.run(output, *names, "test_results.tsv")


def _tag(inputs, output, more):
    run(
        f"run_ner --do_eval --do_predict --train_file={inputs}/tags/train.txt"
        f" --dev_file={inputs}/tags/dev.txt --test_file={inputs}/tags/test.txt"
        f" --output_dir={output} {_training(inputs)} {more}"
    )
    return outputs.run(
        output,
        *("eval_results.txt", "labels.txt", "dev_predictions.txt", "dev_report.txt"),
        *("test_predictions.txt", "test_report.txt"),
    )


@case
def ner(inputs, folder):
    """Fine-tuned, with a head that has predictions from the first step on."""
    head = f"--init_checkpoint={inputs}/heads/tagging/bert_model.ckpt"
    return _tag(inputs, f"{folder}/run", f"{head} {_HIGHER_RATE}")


@case
def ner_predictions(inputs, folder):
    """Of a model that is not trained, with labels of all kinds."""
    output = f"{folder}/run"
    run(
        f"run_ner --do_eval --do_predict --dev_file={inputs}/tags/dev.txt"
        f" --test_file={inputs}/tags/test.txt --labels=O,B-LOC,I-LOC,B-PER,I-PER"
        f" --init_checkpoint={inputs}/heads/tagging/bert_model.ckpt"
        f" --max_seq_length=32 --output_dir={output}"
    )
    names = ["eval_results.txt", "dev_predictions.txt", "dev_report.txt"]
    return _texts(output, [*names, "test_predictions.txt"])


@case(slow=True)
def ner_documents(inputs, folder):
    """In windows over documents."""
    more = "--document_context --max_seq_length=24"
    return _tag(inputs, f"{folder}/run", more)


@case(slow=True)
def ner_features(inputs, folder):
    """A BiLSTM on frozen features."""
    more = "--features=weighted_sum_all --bilstm_size=16"
    return _tag(inputs, f"{folder}/run", more)


# Models that are not trained.


@case
def features(inputs, folder):
    """Vectors of tokens, words and lines."""
    found = {}
    for name, more in (
        ("tokens.jsonl", "--format=jsonl --layers=-1,0"),
        (
            "words.npz",
            "--format=npz --layers=embeddings,-1 --combine=sum --words=mean"
            " --sentence_vectors=pooled,cls,mean",
        ),
    ):
        run(
            f"extract_features --input_file={inputs}/texts/lines.txt {_model(inputs)}"
            f" --output_file={folder}/{name} --max_seq_length=16 {more}"
        )
    rows = [
        json.loads(line) for line in outputs.lines(f"{folder}/tokens.jsonl") if line
    ]
    found["tokens.jsonl"] = [_first_numbers(row) for row in rows]
    with np.load(f"{folder}/words.npz") as file:
        found["words.npz"] = {
            name: [list(file[name].shape), str(file[name].dtype), _summary(file[name])]
            for name in file.files
        }
    return found


def _first_numbers(value):
    """JSON with the first four numbers of each vector."""
    if isinstance(value, dict):
        return {name: _first_numbers(part) for name, part in value.items()}
    if isinstance(value, list) and value and isinstance(value[0], float):
        return [len(value), *value[:4]]
    return (
        [_first_numbers(part) for part in value] if isinstance(value, list) else value
    )


def _summary(array):
    """An array's first numbers, or its strings."""
    flat = array.reshape(-1)
    if flat.dtype.kind == "f":
        return [float(number) for number in flat[:: max(1, flat.size // 40)]]
    return [str(item) for item in flat]


@case
def texts(inputs, folder):
    """Blanks filled in, sentences scored."""
    del folder
    model = f"--checkpoint={inputs}/release/bert_model.ckpt"
    blanks = f"'{WORDS[0]} [MASK] {WORDS[1]}.' '[MASK] {WORDS[5]} [MASK]?'"
    scores = run(f"score --input_file={inputs}/texts/lines.txt --json --tokens {model}")
    return {
        "fill_mask": run(f"fill_mask {blanks} --top_k=3 {model}").split("\n"),
        "score": [json.loads(line) for line in scores.split("\n") if line],
    }


@case(slow=True)
def probe(inputs, folder):
    """What the layers know of words."""
    run(
        f"probe --train_file={inputs}/tags/train.txt --max_seq_length=32"
        f" --test_file={inputs}/tags/dev.txt --output_dir={folder}/run {_model(inputs)}"
    )
    return {"layers": outputs.values(folder, "run", "probing.json")["layers"]}


# Conversions.


def _export(checkpoint, kind, output):
    run(f"export_model --checkpoint={checkpoint} --format={kind} --output_dir={output}")


def _exported(folder):
    found = {"files": outputs.file_names(folder)}
    for name in ("config.json", "bert_config.json", "tokenizer_config.json"):
        if os.path.exists(f"{folder}/{name}"):
            found[name] = outputs.lines(folder, name)
    return {**found, "weights": outputs.weights(folder)}


@case
def conversions(inputs, folder):
    """To every format, and back to the original's."""
    found = {}
    for source in ("release", *(f"heads/{head}" for head in HEADS)):
        for kind in ("tf1", "huggingface", "kerashub"):
            if kind == "kerashub" and source != "release":
                continue  # the encoder alone, whatever the head
            name = f"{os.path.basename(source)} to {kind}"
            output = f"{folder}/{source}/{kind}"
            _export(f"{inputs}/{source}", kind, output)
            found[name] = _exported(output)
            if kind != "tf1":
                _export(output, "tf1", f"{output}_tf1")
                found[f"{name} to tf1"] = _exported(f"{output}_tf1")
    return found


@case(slow=True)
def saved_model(inputs, folder):
    """The files of a model that takes text."""
    output = f"{folder}/exported"
    _export(f"{inputs}/release", "saved_model", output)
    return {"files": outputs.file_names(output)}


# The Python interface.


@case
def interface(inputs, folder):
    """What `import bert_tf` offers, and a few things done with it."""
    del folder
    model = bert_tf.load_pretrainer(f"{inputs}/release")
    lines = outputs.lines(f"{inputs}/texts/lines.txt")[:3]
    tokens = bert_tf.load_tokenizer(f"{inputs}/release")(lines)
    heads = ("classifier", "tagging", "multiple_choice")
    models = {head: bert_tf.load(f"{inputs}/heads/{head}") for head in heads}
    return {
        "names": sorted({*dir(bert_tf)} - {"__version__"}),
        "fill": _plain(bert_tf.load(f"{inputs}/release").fill(f"{WORDS[0]} [MASK].")),
        "predict": _plain(models["classifier"].predict(lines)),
        "tag": _plain(models["tagging"].tag(lines)),
        "embed": models["multiple_choice"].embed(lines)[:, :8].tolist(),
        "tokens": {name: np.asarray(tokens[name]).tolist() for name in sorted(tokens)},
        "weights": {
            name: outputs.array(weight.numpy())
            for name, weight in bert_tf.weights_by_name(model).items()
        },
    }


def _plain(value):
    """Named tuples as JSON has them."""
    if hasattr(value, "_asdict"):
        return {name: _plain(part) for name, part in value._asdict().items()}
    if isinstance(value, (list, tuple)):
        return [_plain(part) for part in value]
    return value


# Runs of the code before this one.


def make_runs(inputs):
    """Writes the runs that later code must read and resume, if they are not there."""
    parent = f"{os.path.dirname(inputs)}/runs"
    for name, make_run in _RUNS.items():
        folder = f"{parent}/{name}"
        if os.path.exists(f"{RUNS}/{name}"):
            shutil.copytree(f"{RUNS}/{name}", folder)
            continue
        os.makedirs(folder)
        make_run(inputs, folder)
        for path in glob.glob(f"{folder}/*"):
            kind = os.path.basename(path)
            if kind.startswith(("events.", "curves.")):
                os.remove(path)
            elif kind.endswith((".json", ".jsonl")):
                # They have been made somewhere else.
                with open(path) as file:
                    values = file.read().replace(os.path.dirname(inputs), "/golden")
                pathlib.Path(path).write_text(values)
        shutil.copytree(folder, f"{RUNS}/{name}")


def _pretrain_tiny(inputs, output, steps):
    run(
        f"run_pretraining --input_file={output}/../records/text.tfrecord"
        f" --output_dir={output} --do_train --do_eval --num_train_steps={steps}"
        " --num_warmup_steps=5 --train_batch_size=8 --max_eval_steps=3"
        f" {_RATE} --log_steps=1 --init_checkpoint={inputs}/tiny/bert_model.ckpt"
    )
    return outputs.run(output, "eval_results.txt")


def _tiny(inputs, epochs):
    model = f"--init_checkpoint={inputs}/tiny/bert_model.ckpt"
    return f"{_training(inputs)} --num_train_epochs={epochs} {model} {_HIGHER_RATE}"


def _tag_tiny(inputs, output, epochs):
    return _tag(inputs, output, _tiny(inputs, epochs).replace(_HIGHER_RATE, ""))


def _classify_tiny(inputs, output, epochs):
    run(
        f"run_classifier --task_name=tsv --data_dir={inputs}/tables/classes"
        f" --output_dir={output} --do_eval --noplots --text_b_column=text_b"
        f" --do_lower_case {_tiny(inputs, epochs)}"
    )
    return outputs.run(output, "eval_results.txt", "dev_predictions.tsv")


def _windows_tiny(inputs, output, epochs):
    run(
        f"run_classifier --task_name=tsv --data_dir={inputs}/tables/several"
        f" --output_dir={output} --do_eval --noplots --several_labels"
        f" --long_text=window --doc_stride=4 {_tiny(inputs, epochs)}"
        " --max_seq_length=12"
    )
    return outputs.run(output, "eval_results.txt")


def _answer_tiny(inputs, output, epochs):
    more = (
        f"{_tiny(inputs, epochs)} --train_file={inputs}/squad/train-v2.0.json"
        " --find_null_threshold"
    )
    names = _run_squad(inputs, output, "2.0", more)
    return outputs.run(output, *names)


def _choose_tiny(inputs, output, epochs):
    run(
        f"run_swag --do_eval --train_file={inputs}/swag/train.csv"
        f" --dev_file={inputs}/swag/val.csv --output_dir={output}"
        f" {_tiny(inputs, epochs)} --train_batch_size=4"
    )
    return outputs.run(output, "eval_results.txt", "dev_predictions.csv")


def _embed_tiny(inputs, output, epochs):
    run(
        f"run_embeddings --train_file={inputs}/tables/classes/train.tsv"
        f" --text_columns=text_a,text_b --score_column= --output_dir={output}"
        f" --pooling=cls --normalize {_tiny(inputs, epochs)}"
    )
    return outputs.run(output)


_TASKS = {
    "ner": _tag_tiny,
    "classes": _classify_tiny,
    "windows": _windows_tiny,
    "questions": _answer_tiny,
    "choices": _choose_tiny,
    "vectors": _embed_tiny,
}
_RUNS = {
    "records": lambda inputs, folder: _records(
        inputs, f"{folder}/text.tfrecord", text="b"
    ),
    "pretraining": lambda inputs, folder: _pretrain_tiny(inputs, folder, 10),
    **{
        name: functools.partial(task, epochs=2)  # of the four that are asked for later
        for name, task in _TASKS.items()
    },
}


@case
def resumed(inputs, folder):
    """Runs of earlier code are resumed: ten steps there, ten here."""
    runs = shutil.copytree(RUNS, f"{folder}/runs")
    return {
        "pretraining": _pretrain_tiny(inputs, f"{runs}/pretraining", 20),
        "ner": _tag_tiny(inputs, f"{runs}/ner", 4),
    }


@case(slow=True)
def resumed_tasks(inputs, folder):
    """Runs of earlier code on every task are resumed."""
    runs = shutil.copytree(RUNS, f"{folder}/runs")
    return {
        name: task(inputs, f"{runs}/{name}", 4)
        for name, task in _TASKS.items()
        if name != "ner"
    }


@case
def earlier(inputs, folder):
    """Runs of earlier code are read: loaded, predicted with, exported."""
    runs = shutil.copytree(RUNS, f"{folder}/runs")
    tables = {
        "classes": f"{inputs}/tables/classes/dev.tsv",
        "windows": f"{inputs}/tables/several/dev.tsv",
        "ner": f"{inputs}/texts/lines.txt",
        "choices": f"{inputs}/swag/test.csv",
    }
    texts = outputs.lines(f"{inputs}/texts/lines.txt")[:3]
    found = {}
    for name in _TASKS:
        model = bert_tf.load(f"{runs}/{name}")
        made = found[name] = {
            "reads": [model.max_length, model.source.config.vocab_size],
        }
        _export(f"{runs}/{name}", "huggingface", f"{folder}/{name}")
        made["exported"] = outputs.file_names(f"{folder}/{name}")
        if name in tables:
            output = f"{folder}/{name}.jsonl"
            run(
                f"predict --checkpoint={runs}/{name} --input_file={tables[name]}"
                f" --output_file={output}"
            )
            lines = outputs.lines(output)
            made["predictions"] = [json.loads(line) for line in lines if line]
    context = outputs.lines(f"{inputs}/texts/context.txt")[0]
    asked = bert_tf.load(f"{runs}/questions").answer(texts[0], context)
    found["questions"]["answers"] = _plain(asked)
    vectors = bert_tf.load(f"{runs}/vectors").embed(texts)
    found["vectors"]["vectors"] = vectors[:, :4].tolist()
    return found
