"""The golden outputs: what is run, and what is kept of it.

Each case is a function of the folder that `inputs.write` has filled, and of a folder
for its outputs; it returns what NAME.json holds. Everything goes through the commands,
so that the package's modules may be moved.
"""

import contextlib
import glob
import hashlib
import json
import os
import shutil
from unittest import mock

import numpy as np

import bert_tf
from bert_tf.records.batching import SplitRecords
from tests.golden import commands, outputs
from tests.golden.inputs import HEADS, WORDS

# Low enough for the last bits of floats not to grow from step to step; where they do
# not, a higher rate shows smaller faults.
_LEARNING_RATE, _HIGHER_RATE = 3e-4, 1e-3
RUNS = os.path.join(os.path.dirname(__file__), "runs")

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


def _records(inputs, output, **options):
    commands.run(
        "create_pretraining_data",
        vocab_file=f"{inputs}/release/vocab.txt",
        output_file=output,
        **{
            "input_file": f"{inputs}/corpus/*.txt",
            "max_seq_length": 32,
            "max_predictions_per_seq": 5,
            "dupe_factor": 2,
            "num_workers": 1,
            **options,
        },
    )
    return output


def _model(inputs):
    return {"init_checkpoint": f"{inputs}/release/bert_model.ckpt"}


def _training(inputs, **options):
    return {
        **_model(inputs),
        "do_train": True,
        "train_batch_size": 8,
        "num_train_epochs": 4.0,
        "learning_rate": _LEARNING_RATE,
        "log_steps": 1,
        "max_seq_length": 32,
        **options,
    }


# Commands, flags, records.


@case
def flags(inputs, folder):
    """Every command's flags with their defaults, and the values that they allow."""
    del inputs, folder
    return {
        name: {"defaults": commands.defaults(name), "choices": commands.choices(name)}
        for name in commands.names()
    }


@case
def records(inputs, folder):
    """The records of pre-training."""
    ways = {
        "static": {},
        "whole_word": {"do_whole_word_mask": True},
        "dynamic": {"masking": "dynamic"},
        "sop": {"pairs": "sop"},
        "none": {"pairs": "none"},
        "exact": {"nsp_labels": "exact"},
        "split": {"split_sentences": True, "short_seq_prob": 0.5, "random_seed": 1},
    }
    found = {
        name: outputs.records(_records(inputs, f"{folder}/{name}.tfrecord", **options))
        for name, options in ways.items()
    }
    _records(inputs, f"{folder}/sharded.tfrecord", num_shards=3)
    shards = sorted(glob.glob(f"{folder}/sharded.tfrecord-*-of-*"))
    found["sharded"] = {
        os.path.basename(path): outputs.records(path) for path in shards
    }
    files = [f"{folder}/dealt{number}.tfrecord" for number in range(2)]
    _records(inputs, ",".join(files))
    found["dealt"] = [outputs.records(path) for path in files]
    return found


def _packed(inputs, folder):
    """Makes packed records."""
    return _records(inputs, f"{folder}/packed.tfrecord", packed_length=64)


@case
def records_packed(inputs, folder):
    """Rows of several records."""
    return outputs.records(_packed(inputs, folder))


@case
def vocabulary(inputs, folder):
    """What is learned from the corpus."""
    path = f"{folder}/vocab.txt"
    commands.run(
        "learn_vocabulary",
        input_file=f"{inputs}/corpus/*.txt",
        output_file=path,
        vocab_size=80,
        num_workers=1,
    )
    return {"vocab.txt": outputs.lines(path)}


# Pre-training.


def _pretrain(inputs, folder, source, **options):
    commands.run(
        "run_pretraining",
        input_file=source,
        output_dir=f"{folder}/run",
        **{
            **_model(inputs),
            "do_train": True,
            "do_eval": True,
            "num_train_steps": 20,
            "num_warmup_steps": 5,
            "train_batch_size": 8,
            "max_eval_steps": 3,
            "learning_rate": _LEARNING_RATE,
            "log_steps": 1,
            **options,
        },
    )
    return outputs.run(f"{folder}/run", "eval_results.txt")


@case
def pretraining(inputs, folder):
    """Of static records, evaluated."""
    path = _records(inputs, f"{folder}/static.tfrecord")
    return _pretrain(inputs, folder, path, learning_rate=_HIGHER_RATE)


@case(slow=True)
def pretraining_dynamic(inputs, folder):
    """Masked as they are read."""
    path = _records(inputs, f"{folder}/dynamic.tfrecord", masking="dynamic")
    return _pretrain(inputs, folder, path, masking_unit="span")


@case(slow=True)
def pretraining_packed(inputs, folder):
    """Of several sequences in a row."""
    return _pretrain(inputs, folder, _packed(inputs, folder))


@case(slow=True)
def pretraining_none(inputs, folder):
    """Without pairs, accumulated, with LAMB."""
    path = _records(inputs, f"{folder}/none.tfrecord", pairs="none")
    return _pretrain(
        inputs, folder, path, optimizer="lamb", gradient_accumulation_steps=2
    )


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


def _classify(inputs, folder, kind, **options):
    commands.run(
        "run_classifier",
        task_name="tsv",
        data_dir=f"{inputs}/tables/{kind}",
        output_dir=f"{folder}/run",
        **_training(inputs, do_eval=True, do_predict=True, plots=False, **options),
    )
    return outputs.run(f"{folder}/run", *_CLASSIFIER_FILES)


@case
def classifier(inputs, folder):
    """Pairs of texts, three labels."""
    options = {"text_b_column": "text_b", "learning_rate": _HIGHER_RATE}
    return _classify(inputs, folder, "classes", **options)


@case(slow=True)
def classifier_regression(inputs, folder):
    """A number."""
    return _classify(inputs, folder, "numbers", regression=True)


@case(slow=True)
def classifier_several(inputs, folder):
    """Any number of labels."""
    return _classify(
        inputs,
        folder,
        "several",
        several_labels=True,
        eval_steps=10,
        long_text="window",
    )


@case(slow=True)
def classifier_parts(inputs, folder):
    """Of whose weights some are trained, or some are new."""
    ways = {
        "lora": {"lora_rank": 2},
        "adapters": {"adapter_size": 4, "train_pooler": True},
        "mixture": {"layer_mixture": True, "reinitialize_layers": 1},
        "rates": {"frozen_layers": "embeddings", "layerwise_learning_rate_decay": 0.8},
    }
    found = {}
    for name, options in ways.items():
        commands.run(
            "run_classifier",
            task_name="tsv",
            data_dir=f"{inputs}/tables/classes",
            text_b_column="text_b",
            output_dir=f"{folder}/{name}",
            plots=False,
            **_training(inputs, do_eval=True, num_train_epochs=2.0, **options),
        )
        found[name] = outputs.run(f"{folder}/{name}", "eval_results.txt")
    return found


@case(slow=True)
def classifier_choice(inputs, folder):
    """The best of several runs."""
    output = f"{folder}/run"
    commands.run(
        "run_classifier",
        task_name="tsv",
        data_dir=f"{inputs}/tables/classes",
        text_b_column="text_b",
        output_dir=output,
        learning_rates=[1e-3, 1e-4],
        stop_early=True,
        stop_early_at=0.5,
        stop_early_keep=1,
        **{
            name: value
            for name, value in _training(inputs, do_eval=True, plots=False).items()
            if name != "learning_rate"
        },
    )
    return {"runs": _runs(output), **_texts(output, _CLASSIFIER_FILES[:3])}


@case(slow=True)
def glue(inputs, folder):
    """Two of its tasks, without a submission."""
    output = f"{folder}/run"
    commands.run(
        "run_glue",
        tasks="RTE,CoLA",
        glue_dir=f"{inputs}/glue",
        output_dir=output,
        do_predict=False,
        plots=False,
        learning_rates=[1e-3, 5e-4],
        train_batch_size=8,
        num_train_epochs=2,
        max_seq_length=32,
        **_model(inputs),
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
    seen, of = [], SplitRecords.of

    def kept(schema, made_from, blocks):
        seen.extend(blocks)
        return of(schema, made_from, seen)

    with mock.patch.object(SplitRecords, "of", kept):
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


def _squad_options(version):
    return {
        "version_2_with_negative": version == "2.0",
        "doc_stride": 8,
        "max_query_length": 8,
        "n_best_size": 5,
        "max_answer_length": 8,
    }


def _squad(inputs, folder, version, **options):
    output = f"{folder}/run"
    with _seen_blocks() as blocks:
        commands.run(
            "run_squad",
            do_predict=True,
            train_file=f"{inputs}/squad/train-v{version}.json",
            predict_file=f"{inputs}/squad/dev-v{version}.json",
            output_dir=output,
            plots=False,
            **_squad_options(version),
            **_training(inputs, **options),
        )
    names = ["eval_results.txt", "predictions.json", "nbest_predictions.json"]
    names += ["null_odds.json"] * (version == "2.0")
    return {**outputs.run(output, *names), "windows": _squad_windows(blocks)}


@case(slow=True)
def squad_1(inputs, folder):
    """SQuAD 1.1."""
    return _squad(inputs, folder, "1.1", num_train_epochs=2.0)


@case
def squad_2(inputs, folder):
    """SQuAD 2.0."""
    return _squad(inputs, folder, "2.0", num_train_epochs=3.0, length_buckets=1)


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
        file = f"{inputs}/squad/dev-v{version}.json"
        is_2 = version == "2.0"
        commands.run(
            "run_squad",
            do_predict=True,
            predict_file=file,
            output_dir=output,
            init_checkpoint=f"{model}/bert_model.ckpt",
            max_seq_length=32,
            answer_text=text,
            find_null_threshold=is_2 and text == "offsets",
            plots=False,
            **_squad_options(version),
        )
        names = ["eval_results.txt", "predictions.json", "nbest_predictions.json"]
        names += ["null_odds.json"] * is_2
        odds = {"na_prob_file": f"{output}/null_odds.json"} if is_2 else {}
        scores = commands.run(
            "evaluate_squad", file, f"{output}/predictions.json", **odds
        )
        found[f"{version} {text}"] = {
            **_texts(output, names),
            "evaluate_squad": scores.split("\n"),
        }
    both = f"{folder}/ensemble"
    _shift_odds(f"{folder}/2.0-offsets", f"{folder}/shifted")
    scores = commands.run(
        "ensemble_squad",
        prediction_dirs=[f"{folder}/2.0-alignment", f"{folder}/shifted"],
        output_dir=both,
        predict_file=f"{inputs}/squad/dev-v2.0.json",
        version_2_with_negative=True,
        n_best_size=5,
    )
    names = ["predictions.json", "nbest_predictions.json", "null_odds.json"]
    found["ensemble"] = {"printed": scores.split("\n"), **_texts(both, names)}
    found["answer"] = commands.run(
        "answer",
        f"{WORDS[0]} {WORDS[1]}?",
        f"{WORDS[2]} {WORDS[3]} {WORDS[4]}?",
        checkpoint=model,
        context_file=f"{inputs}/texts/context.txt",
        max_seq_length=32,
        doc_stride=8,
        max_query_length=8,
        top_k=2,
    ).split("\n")
    return found


def _shift_odds(folder, other):
    """Copies a run's predictions as those of another model that answers more often."""
    os.makedirs(other)
    for name in ("predictions.json", "nbest_predictions.json"):
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
    commands.run(
        "run_swag",
        do_eval=True,
        do_predict=True,
        train_file=f"{inputs}/swag/train.csv",
        dev_file=f"{inputs}/swag/val.csv",
        test_file=f"{inputs}/swag/test.csv",
        output_dir=output,
        **_training(inputs, train_batch_size=4, learning_rate=_HIGHER_RATE),
    )
    return outputs.run(
        output,
        "eval_results.txt",
        "dev_predictions.csv",
        "swag_predictions.csv",
        "test_results.tsv",
    )


def _tag(inputs, output, **options):
    commands.run(
        "run_ner",
        do_eval=True,
        do_predict=True,
        train_file=f"{inputs}/tags/train.txt",
        dev_file=f"{inputs}/tags/dev.txt",
        test_file=f"{inputs}/tags/test.txt",
        output_dir=output,
        **_training(inputs, **options),
    )
    return outputs.run(
        output,
        "eval_results.txt",
        "labels.txt",
        "dev_predictions.txt",
        "dev_report.txt",
        "test_predictions.txt",
        "test_report.txt",
    )


@case
def ner(inputs, folder):
    """Fine-tuned, with a head that has predictions from the first step on."""
    head = f"{inputs}/heads/tagging/bert_model.ckpt"
    options = {"init_checkpoint": head, "learning_rate": _HIGHER_RATE}
    return _tag(inputs, f"{folder}/run", **options)


@case
def ner_predictions(inputs, folder):
    """Of a model that is not trained, with labels of all kinds."""
    output = f"{folder}/run"
    commands.run(
        "run_ner",
        do_eval=True,
        do_predict=True,
        dev_file=f"{inputs}/tags/dev.txt",
        test_file=f"{inputs}/tags/test.txt",
        labels="O,B-LOC,I-LOC,B-PER,I-PER",
        init_checkpoint=f"{inputs}/heads/tagging/bert_model.ckpt",
        max_seq_length=32,
        output_dir=output,
    )
    names = ["eval_results.txt", "dev_predictions.txt", "dev_report.txt"]
    return _texts(output, [*names, "test_predictions.txt"])


@case(slow=True)
def ner_documents(inputs, folder):
    """In windows over documents."""
    return _tag(inputs, f"{folder}/run", document_context=True, max_seq_length=24)


@case(slow=True)
def ner_features(inputs, folder):
    """A BiLSTM on frozen features."""
    return _tag(inputs, f"{folder}/run", features="weighted_sum_all", bilstm_size=16)


@case(slow=True)
def feature_table(inputs, folder):
    """Fine-tuning beside a BiLSTM, as the paper's Table 7."""
    output = f"{folder}/run"
    commands.run(
        "run_feature_table",
        ways="fine_tuned,last",
        train_file=f"{inputs}/tags/train.txt",
        dev_file=f"{inputs}/tags/dev.txt",
        output_dir=output,
        bilstm_size=16,
        bilstm_epochs=2.0,
        num_train_epochs=2.0,
        train_batch_size=8,
        max_seq_length=32,
        **_model(inputs),
    )
    return {
        os.path.relpath(path, output): outputs.lines(path)
        for path in sorted(glob.glob(f"{output}/*/eval_results.txt"))
    }


# Models that are not trained.


@case
def features(inputs, folder):
    """Vectors of tokens, words and lines."""
    found = {}
    ways = {
        "tokens": {"format": "jsonl", "layers": [-1, 0]},
        "words": {
            "format": "npz",
            "layers": ["embeddings", -1],
            "combine": "sum",
            "words": "mean",
            "sentence_vectors": ["pooled", "cls", "mean"],
        },
    }
    for name, options in ways.items():
        path = f"{folder}/{name}.{options['format']}"
        commands.run(
            "extract_features",
            input_file=f"{inputs}/texts/lines.txt",
            output_file=path,
            max_seq_length=16,
            **options,
            **_model(inputs),
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
    model = {"checkpoint": f"{inputs}/release/bert_model.ckpt"}
    blanks = [f"{WORDS[0]} [MASK] {WORDS[1]}.", f"[MASK] {WORDS[5]} [MASK]?"]
    lines = f"{inputs}/texts/lines.txt"
    scores = commands.run("score", input_file=lines, json=True, tokens=True, **model)
    return {
        "fill_mask": commands.run("fill_mask", *blanks, top_k=3, **model).split("\n"),
        "score": [json.loads(line) for line in scores.split("\n") if line],
    }


@case(slow=True)
def probe(inputs, folder):
    """What the layers know of words."""
    commands.run(
        "probe",
        train_file=f"{inputs}/tags/train.txt",
        test_file=f"{inputs}/tags/dev.txt",
        output_dir=f"{folder}/run",
        max_seq_length=32,
        **_model(inputs),
    )
    return {"layers": outputs.values(folder, "run", "probing.json")["layers"]}


# Conversions.


def _export(checkpoint, kind, output):
    commands.run("export_model", checkpoint=checkpoint, format=kind, output_dir=output)


def _exported(folder):
    found = {"files": outputs.file_names(folder)}
    for name in (
        "config.json",
        "bert_config.json",
        "tokenizer_config.json",
    ):
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
        "names": bert_tf.__all__,
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
    """Writes the runs that later code must resume, and their records."""
    folder = f"{os.path.dirname(inputs)}/runs"
    os.makedirs(f"{folder}/records")
    text = {"input_file": f"{inputs}/corpus/b.txt"}
    _records(inputs, f"{folder}/records/text.tfrecord", **text)
    _pretrain_tiny(inputs, f"{folder}/pretraining", f"{folder}/records", 10)
    _tag_tiny(inputs, f"{folder}/ner", 2)
    for path in glob.glob(f"{folder}/*/*"):
        name = os.path.basename(path)
        if name.startswith(("events.", "curves.")):
            os.remove(path)
        elif name.endswith((".json", ".jsonl")):
            # They have been made somewhere else.
            with open(path) as file:
                values = file.read().replace(os.path.dirname(inputs), "/golden")
            with open(path, "w") as file:
                file.write(values)
    shutil.rmtree(RUNS, ignore_errors=True)
    shutil.copytree(folder, RUNS)


def _pretrain_tiny(inputs, output, records_folder, steps):
    commands.run(
        "run_pretraining",
        input_file=f"{records_folder}/text.tfrecord",
        output_dir=output,
        do_train=True,
        do_eval=True,
        num_train_steps=steps,
        num_warmup_steps=5,
        train_batch_size=8,
        max_eval_steps=3,
        learning_rate=_LEARNING_RATE,
        log_steps=1,
        init_checkpoint=f"{inputs}/tiny/bert_model.ckpt",
    )
    return outputs.run(output, "eval_results.txt")


def _tag_tiny(inputs, output, epochs):
    model = {"init_checkpoint": f"{inputs}/tiny/bert_model.ckpt"}
    return _tag(inputs, output, num_train_epochs=epochs, **model)


@case
def resumed(inputs, folder):
    """Runs of earlier code go on: ten steps there, ten here."""
    shutil.copytree(RUNS, f"{folder}/runs")
    return {
        "pretraining": _pretrain_tiny(
            inputs, f"{folder}/runs/pretraining", f"{folder}/runs/records", 20
        ),
        "ner": _tag_tiny(inputs, f"{folder}/runs/ner", 4),
    }
