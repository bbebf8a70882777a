"""Reads damaged files with every reader of users' files and runs: SEED CASES [FIRST].

Prints "NUMBER NAME CASE" before each case, and a second line for what is no message.
"""

import collections
import dataclasses
import gzip
import io
import json
import logging as python_logging
import os
import random
import shutil
import signal
import sys
import tempfile
import traceback
import warnings

import pyarrow
from absl import logging
from pyarrow import parquet

from bert_tf.addons.planning import trackers
from bert_tf.addons.serving import answer
from bert_tf.addons.study import (
    ensemble_squad,
    inspect_checkpoint,
    inspect_records,
    score,
)
from bert_tf.base import cli, files, strict_json
from bert_tf.base.config import MULTI_LABEL, SINGLE_LABEL, BertConfig
from bert_tf.base.errors import InputError
from bert_tf.base.finished import FinishedResults
from bert_tf.conversion import export, kerashub
from bert_tf.conversion.adapter_files import open_adapter, write_adapter
from bert_tf.conversion.reading import read_reading
from bert_tf.conversion.source import open_source
from bert_tf.conversion.tokenizer_files import (
    read_labels,
    read_tokenizer,
    read_words,
    write_labels,
)
from bert_tf.instances.settings import InstanceSettings
from bert_tf.modeling.heads import BertClassifier, BertPretrainer
from bert_tf.records import record_sets, tokenized_corpus
from bert_tf.records.manifest import Manifest
from bert_tf.records.pipeline import READING_ERRORS, record_counts, record_error
from bert_tf.records.pretraining_input import PretrainingRecords
from bert_tf.records.statistics import RecordStatistics
from bert_tf.tasks import glue, glue_suite
from bert_tf.tasks.feature_extraction.feature_records import read_lines
from bert_tf.tasks.run_log import RunRecord
from bert_tf.tasks.run_options import RunSetting
from bert_tf.tasks.selection import RunLog
from bert_tf.tasks.squad import evaluate_squad, null_threshold
from bert_tf.tasks.squad.reading import read_file
from bert_tf.tasks.swag.choices import ChoiceLayout, read_choices
from bert_tf.tasks.tables import TableSplit
from bert_tf.tasks.tagging import words
from bert_tf.tasks.tagging.sentences import Layout, read_sentences
from bert_tf.text import documents, sources
from bert_tf.text.vocabulary import Vocabulary
from bert_tf.training import checkpoints, reporting, run_folder
from bert_tf.training.checkpoints import RunCheckpoints
from bert_tf.training.reporting import Reporter
from tests.conversion import runs
from tests.file_mutations import mutated
from tests.golden import inputs
from tests.records import unmasked
from tests.training import toy

_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "##s", "sat")
_MOST_SECONDS = 30


def _path(folder, name):
    return os.path.join(folder, name)


def _write(folder, name, content):
    os.makedirs(os.path.dirname(_path(folder, name)), exist_ok=True)
    with open(_path(folder, name), "wb") as file:
        file.write(content if isinstance(content, bytes) else content.encode())


def _of(name, content):
    """What makes a folder of one file."""
    return lambda folder: _write(folder, name, content)


def _small(write, name, new):
    """What makes a folder of one of the small task files of `golden.inputs`."""

    def make(folder):
        with tempfile.TemporaryDirectory() as parent:
            write(parent)
            _write(folder, new, files.read_bytes(_path(parent, name)))

    return make


def _json_of(name, values):
    return _of(name, json.dumps(values))


def _json_lines_of(name, *rows):
    return _of(name, "".join(json.dumps(row) + "\n" for row in rows))


def _at(name, read):
    """What reads a folder's one file."""
    return lambda folder: read(_path(folder, name))


def _make_vocabulary(folder):
    Vocabulary(_TOKENS).save(_path(folder, "vocab.txt"))


def _make_run(folder, model=None):
    model = model or BertClassifier(toy.CONFIG, 2)
    runs.save(folder, model, tokens=_TOKENS, casing=True, labels=["a", "b"])
    _write(folder, "flags.json", json.dumps({"learning_rate": 1e-4, "phases": None}))


def _make_export(write):
    def make(folder):
        run = tempfile.mkdtemp()
        _make_run(run, BertPretrainer(toy.CONFIG))
        write(folder, export.completed(open_source(run)))
        shutil.rmtree(run)

    return make


def _make_hugging_face_in_parts(folder):
    _make_export(export.write_huggingface)(folder)
    os.rename(_path(folder, "model.safetensors"), _path(folder, "part.safetensors"))
    names = export.huggingface.read_tensors(_path(folder, "part.safetensors"))
    index = {"weight_map": dict.fromkeys(names, "part.safetensors")}
    _write(folder, "model.safetensors.index.json", json.dumps(index))
    _write(folder, "modules.json", json.dumps([{"idx": 0, "path": ""}]))


def _make_adapter(folder):
    model = BertClassifier(toy.CONFIG, 2, lora_rank=2)
    write_adapter(folder, model, labels=("a", "b"), problem_type=SINGLE_LABEL)


def _read_weights(weights):
    for name in weights:
        weights[name]


def _open(folder):
    source = open_source(folder)
    source.require_config()
    inspect_checkpoint.report(source)
    _read_weights(source.weights)
    export.completed(source)


def _restore(folder):
    model = BertClassifier(toy.CONFIG, 2)
    read_labels(folder)
    run_folder.refuse_other_config(
        BertConfig.from_json_file(_path(folder, "bert_config.json")), toy.CONFIG, folder
    )
    RunCheckpoints(folder, model).restore()


def _read_kerashub(folder):
    _read_weights(kerashub.read_model(folder)[1])
    _open(folder)


def _make_records(folder):
    unmasked.write_set(_path(folder, "x.tfrecord"), count=6)
    unmasked.VOCABULARY.save(_path(folder, "x.tfrecord.vocab.txt"))


def _read_batches(records):
    try:
        records.check_model(BertConfig(vocab_size=unmasked.V))
        for batch in records.evaluation_dataset(2):
            del batch
    except READING_ERRORS as error:
        raise InputError(record_error(error)) from error


def _read_records(folder):
    records = PretrainingRecords(
        _path(folder, "x.tfrecord"), counts_cache=_path(folder, "record_counts.json")
    )
    _ = records.counts
    _read_batches(records)


def _inspect(folder):
    collections.deque(inspect_records.opened([_path(folder, "x.tfrecord")]).blocks(), 0)


def _count(folder):
    toy_records = _path(folder, "x.tfrecord")
    return record_counts([toy_records], _path(folder, "record_counts.json"))


def _make_counted(folder):
    toy.write_records(_path(folder, "x.tfrecord"))
    _count(folder)


def _make_packed(folder):
    content = files.read_bytes(toy.write_records(_path(folder, "y")))
    _write(folder, "x.tfrecord.gz", gzip.compress(content))
    os.remove(_path(folder, "y"))


def _read_packed(folder):
    _read_batches(PretrainingRecords(_path(folder, "x.tfrecord.gz")))


def _make_metrics(folder):
    reporter = Reporter(folder)
    for step in (10, 20):
        reporter.report(step, {"loss": 2.0 / step, "learning_rate": 1e-4})
        reporter.report_evaluation(step, {"loss": 2.5, "accuracy": 0.5})
    reporter.close()
    for name in os.listdir(folder):
        if "tfevents" in name:
            os.remove(_path(folder, name))


def _read_metrics(folder):
    reporting.read_curves(folder)
    reporter = Reporter(folder, 10, is_chief=False)
    reporter.evaluation(10)


def _best(folder):
    checkpoints.read_best(checkpoints.folder_of(folder))


def _selection(folder):
    return RunLog(folder, "accuracy", {"init_checkpoint": "x", "lengths": [1, 2]})


def _make_selection(folder):
    records = _selection(folder)
    for seed in range(3):
        scores = {0.3: {"accuracy": 0.5, "loss": 1.0}, 1.0: {"accuracy": 0.75}}
        settings = RunSetting(5e-5, 16, 3.0, seed)
        records.put(RunRecord(settings=settings, scores=scores, step=9, seconds=1.5))
    records.put(RunRecord(settings=RunSetting(1.0, 16, 3.0, 9), failure="NaN"))


def _read_selection(folder):
    for record in _selection(folder).all():
        _ = record.status, record.share, record.score("accuracy"), record.to_json()


_RESULT = {
    "task": "MRPC",
    "scores": {"f1": 0.9, "accuracy": 0.8},
    "metric": "f1",
    "run": "lr5e-05",
    "restarts": [0.9, 0.8],
    "num_runs": 2,
    "num_failed": 0,
    "seconds": 3.5,
    "predicted": ["test"],
    "inputs": {"dev": "a"},
}


def _read_results(folder):
    for result in glue_suite.read_results(folder).values():
        _ = result.has_failed, result.scores[result.metric]


def _read_squad(folder):
    path = _path(folder, "squad.json")
    read_file(path, version_2_with_negative=True, for_training=True)
    golds = evaluate_squad.read_golds(path)
    return golds.golds


def _read_ensemble(folder):
    return list(ensemble_squad.ensemble([folder], version_2_with_negative=True))


def _make_n_best(folder):
    entry = {"text": "a", "probability": 0.5, "start_logit": 1.0, "end_logit": 2.0}
    other = {"text": "", "probability": 0.5, "start_logit": 0.5, "end_logit": -1.5}
    _write(folder, "nbest_predictions.json", json.dumps({"1": [entry, other]}))
    _write(folder, "null_odds.json", json.dumps({"1": 0.5}))


def _read_table(name):
    return _at(name, TableSplit(text_a="text_a", text_b="text_b", label="label").read)


def _corpus(name, **options):
    def read(folder):
        for chunk in sources.make_chunks([_path(folder, name)], **options):
            collections.deque(documents.read_chunk(chunk, collections.Counter()), 0)

    return read


def _parquet_of(row):
    """What makes a folder of one file of equal rows."""
    rows = pyarrow.Table.from_pylist([row] * 3)
    return lambda folder: parquet.write_table(rows, _path(folder, "x.parquet"))


def _sentences(name, **layout):
    return _at(
        name, lambda path: read_sentences([path], Layout(**layout), has_labels=None)
    )


def _shard_job(folder):
    return record_sets.ShardJob(
        group=0,
        num_groups=1,
        path=_path(folder, "records"),
        settings=InstanceSettings(),
        result_path=_path(folder, "shard.json"),
    )


def _make_shard_result(folder):
    _write(folder, "records", b"x" * 9)
    statistics = RecordStatistics(max_seq_length=8, mask_id=4)
    result = record_sets.ShardResult(
        num_records=[1], num_bytes=[9], statistics=statistics
    )
    job = _shard_job(folder)
    FinishedResults(job.result_path, record_sets.ShardResult).keep(
        "records", job.settings.as_flags(), result
    )


def _make_chunk(folder):
    chunk = tokenized_corpus.TokenizedChunk(num_tokens=1, ends_with_end=True)
    _write(folder, "chunk.json", json.dumps(dataclasses.asdict(chunk)))


def _read_chunk(folder):
    strict_json.read(tokenized_corpus.TokenizedChunk, _path(folder, "chunk.json"))


def _make_start(folder):
    _write(folder, "checkpoint", "")
    start = {
        "step": 0,
        "task": "MRPC",
        "data": {"name": "x", "digest": "y"},
        "settings": {"learning_rate": 1e-4},
        "flags": {},
    }
    _write(folder, "starts.jsonl", json.dumps(start) + "\n")


def _read_start(folder):
    data = run_folder.RunData("x", "y")
    run_folder._refuse_other_task(folder, "MRPC", data)


def _score(folder):
    flag_values = cli.parse(
        score.run, ["--checkpoint=x", f"--input_file={_path(folder, 'text.txt')}"]
    )
    return score._texts(flag_values)


_CONLLU = (
    "# newdoc\n# text = the cat\n1\tthe\tthe\tDET\tDT\t_\t2\tdet\t_\t_\n"
    "2-3\tcats\t_\t_\t_\t_\t_\t_\t_\t_\n2\tcat\tcat\tNOUN\tNN\t_\t0\troot\t_\t_\n"
    "3\ts\ts\tX\tX\t_\t2\tx\t_\t_\n\n1\tsat\tsit\tVERB\tVB\t_\t0\troot\t_\t_\n\n"
)
_PAGES = (
    '<doc id="1" url="x" title="Cat">\nCat\n\nThe cat sat. It slept.\n</doc>\n'
    '<doc id="2" url="x" title="Mat">\nMat\n\nThe mat lay.\n</doc>\n'
)
_TAGGED = {"tokens": ["the", "cat"], "ner_tags": ["O", "B-PER"], "document_id": 1}
_SPANS = {"text": "the cat.", "spans": [{"start": 4, "end": 7, "label": "PER"}]}
_GLUE = "index\tprediction\n" + "".join(f"{row}\t0\n" for row in range(146))

# Name -> (what makes a folder of good files, what reads the folder).
READERS = {
    "vocabulary": (
        _make_vocabulary,
        _at("vocab.txt", lambda path: Vocabulary.from_file(path).sha256),
    ),
    "config": (toy.write_config, _at("bert_config.json", BertConfig.from_json_file)),
    "tokenizer": (_make_export(export.write_huggingface), read_tokenizer),
    "labels": (
        lambda folder: write_labels(folder, ["a\n", "b"], MULTI_LABEL),
        read_labels,
    ),
    "manifest": (
        _make_records,
        _at("x.tfrecord.manifest.json", Manifest.from_json_file),
    ),
    "records": (_make_records, _read_records),
    "records without a manifest": (
        lambda folder: toy.write_records(_path(folder, "x.tfrecord"), 6),
        _read_records,
    ),
    "packed records": (_make_packed, _read_packed),
    "inspected records": (_make_records, _inspect),
    "counts": (_make_counted, _count),
    "run": (_make_run, _open),
    "run to resume": (_make_run, _restore),
    "TF1": (_make_export(export.write_tf1), _open),
    "Hugging Face": (_make_export(export.write_huggingface), _open),
    "Hugging Face in parts": (_make_hugging_face_in_parts, _open),
    "KerasHub": (_make_export(export.write_kerashub), _read_kerashub),
    "adapter": (
        _make_adapter,
        lambda folder: _read_weights(open_adapter(folder).weights),
    ),
    "SQuAD": (_small(inputs.write_squad, "dev-v2.0.json", "squad.json"), _read_squad),
    "SQuAD predictions": (
        _json_of("predictions.json", {"1": "the cat", "2": ""}),
        _at(
            "predictions.json",
            lambda path: evaluate_squad.read_by_question(path, "file", str),
        ),
    ),
    "ensemble": (_make_n_best, _read_ensemble),
    "tab-separated": (
        _small(inputs.write_tables, "classes/dev.tsv", "x.tsv"),
        _read_table("x.tsv"),
    ),
    "comma-separated": (
        _of("x.csv", 'text_a,text_b,label\n"the ""cat""",sat,yes\n"a\nb",c,no\n'),
        _read_table("x.csv"),
    ),
    "rows of Parquet": (
        _parquet_of({"text_a": "the", "text_b": "cat", "label": 1}),
        _read_table("x.parquet"),
    ),
    "a list of rows": (
        _json_of("x.json", [{"text_a": "the", "text_b": "cat", "label": 1}] * 2),
        _read_table("x.json"),
    ),
    "choices": (
        _small(inputs.write_swag, "val.csv", "x.csv"),
        _at("x.csv", lambda path: read_choices(path, ChoiceLayout(), has_labels=1)),
    ),
    "columns": (
        _small(inputs.write_tags, "dev.txt", "x.txt"),
        _sentences("x.txt", format="conll"),
    ),
    "CoNLL-U": (_of("x.conllu", _CONLLU), _sentences("x.conllu")),
    "texts with spans": (
        _json_lines_of("y.jsonl", _SPANS, _SPANS),
        _sentences("y.jsonl", format="spans"),
    ),
    "a table of questions": (
        _of("q.csv", "question,context,answer\nWho?,A man sat,man\n"),
        lambda folder: read_file(_path(folder, "q.csv"), for_training=True),
    ),
    "tagged JSON": (_json_lines_of("x.jsonl", _TAGGED, _TAGGED), _sentences("x.jsonl")),
    "text": (_of("x.txt", "The cat sat.\nIt slept.\n\nMore.\n"), _corpus("x.txt")),
    "text in .gz": (
        _of("x.txt.gz", gzip.compress(b"The cat sat.\nIt slept.\n" * 9)),
        _corpus("x.txt.gz"),
    ),
    "documents in JSON": (
        _json_lines_of("x.jsonl", *[{"text": "The cat.\n\nIt.", "title": "x"}] * 3),
        _corpus("x.jsonl"),
    ),
    "text in UTF-16": (
        _of("x.txt", "The cat sat.\nIt slept.\n\nMore.\n".encode("utf-16")),
        _corpus("x.txt", encoding="utf-16"),
    ),
    "text of a PDF": (
        _of("x.txt", "A cat-\n1\n\fsat.\n2\n"),
        _corpus("x.txt", clean="pdf"),
    ),
    "rows of text": (_parquet_of({"text": "The cat.\n\nIt."}), _corpus("x.parquet")),
    "pages": (_of("x", _PAGES), _corpus("x", input_format="wikiextractor")),
    "lines of text": (
        _of("x.txt", "the cat ||| sat\nthe mat\n"),
        _at("x.txt", lambda path: list(read_lines(path))),
    ),
    "sentences to score": (_of("text.txt", "the cat sat\n\nthe mat\n"), _score),
    "context": (_of("x.txt", "The cat sat.\n"), _at("x.txt", answer.read_context)),
    "metrics": (_make_metrics, _read_metrics),
    "trackers": (_json_of("trackers.json", {"wandb": "w1"}), trackers.known_ids),
    "best": (
        _json_of("best/best.json", {"metric": "loss", "step": 3, "value": 2.25}),
        _best,
    ),
    "selection": (_make_selection, _read_selection),
    "GLUE's results": (
        _json_of("glue.json", {"tasks": {"MRPC": _RESULT}}),
        _read_results,
    ),
    "GLUE's predictions": (
        _of("WNLI.tsv", _GLUE),
        _at(
            "WNLI.tsv", lambda path: glue._checked(path, glue.task_file("WNLI", "test"))
        ),
    ),
    "null threshold": (
        _json_of(
            "null_threshold.json",
            {"null_score_diff_threshold": -1.5, "checkpoint": "model.ckpt-3"},
        ),
        lambda folder: null_threshold.read(folder, _path(folder, "model.ckpt-3")),
    ),
    "features of a run": (
        _json_of("features.json", {"features": "all", "weights": "x"}),
        lambda folder: words.check_feature_choice(folder, {"features": "other"}),
    ),
    "reading of a run": (
        _json_of(
            "reading.json",
            {"columns": {"text_a_column": "text"}, "max_seq_length": 9},
        ),
        read_reading,
    ),
    "words of a run": (
        _json_of("words.json", {"longest": 3, "splits_cjk": False}),
        read_words,
    ),
    "result of a shard": (
        _make_shard_result,
        lambda folder: _shard_job(folder).finished(),
    ),
    "tokenized chunk": (_make_chunk, _read_chunk),
    "start of a run": (_make_start, _read_start),
}


def _files_of(folder):
    return {
        os.path.relpath(path, folder): files.read_bytes(path)
        for root, _, names in os.walk(folder)
        for path in (os.path.join(root, name) for name in names)
    }


def _try(name, number, seed, good, work):
    """Reads the files with one of them damaged; what went wrong, if anything."""
    rng = random.Random(f"{seed} {name} {number}")
    victim = sorted(good)[number % len(good)]
    shutil.rmtree(work, ignore_errors=True)
    os.makedirs(work)
    for path, content in good.items():
        _write(work, path, mutated(content, path, rng) if path == victim else content)
    told = cli._users_errors()
    try:
        READERS[name][1](work)
    except told as error:
        line = cli.one_line(error)
        return "" if line and len(line) < 5_000 else f"{len(line)} characters: {line}"
    except BaseException:  # noqa: BLE001 (each one is a finding)
        return f"{victim}: {traceback.format_exc()}"
    return ""


def main():
    """Tries every reader."""
    seed, cases, first = (*map(int, sys.argv[1:]), 0)[:3]
    logging.set_verbosity(logging.FATAL)
    python_logging.disable(python_logging.CRITICAL)
    warnings.simplefilter("ignore")
    # What a broken file made of print must not look like ours.
    out, sys.stdout = sys.stdout, io.StringIO()
    number = -1
    folder = tempfile.mkdtemp()
    for name, (make, read) in READERS.items():
        if number + cases < first:
            number += cases
            continue
        shutil.rmtree(folder)
        os.makedirs(folder)
        make(folder)
        good = _files_of(folder)
        read(folder)
        for case in range(cases):
            number += 1
            if number < first:
                continue
            print(f"{number} {name} {case}", file=out, flush=True)
            signal.alarm(_MOST_SECONDS)
            problem = _try(name, case, seed, good, folder)
            signal.alarm(0)
            if problem:
                print(json.dumps(problem), file=out, flush=True)
    shutil.rmtree(folder)
    print("done", file=out, flush=True)


if __name__ == "__main__":
    main()
