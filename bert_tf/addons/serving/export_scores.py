"""A checkpoint and its export, compared by the evaluation of the model's own task.

The task reads the file, makes the batches and scores the predictions as in its own
command. The outputs are those of the checkpoint in float32, and of the exported file.
"""

import math
import os
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from keras import ops

from bert_tf.addons.methods.embeddings import EmbeddingTask
from bert_tf.addons.methods.embeddings_options import EmbeddingOptions
from bert_tf.addons.serving import onnx_graph, runtimes
from bert_tf.addons.serving.onnx_files import OnnxModel
from bert_tf.base import files, options
from bert_tf.base.config import MULTI_LABEL, REGRESSION
from bert_tf.base.errors import InputError
from bert_tf.conversion import loading, names
from bert_tf.conversion.huggingface import sentence_settings
from bert_tf.conversion.source import ONNX_NAME, Source, folder_of, load_tokenizer
from bert_tf.modeling.pooling import pooled_tokens
from bert_tf.records.batching import Arrays
from bert_tf.tasks.classification import ClassificationTask, LabelledTask
from bert_tf.tasks.data_set_options import ClassifierOptions
from bert_tf.tasks.multiple_choice import ChoiceTask
from bert_tf.tasks.multiple_choice_options import ChoiceOptions
from bert_tf.tasks.squad import null_threshold, reading
from bert_tf.tasks.squad.spans import SquadTask
from bert_tf.tasks.squad.squad_options import SquadOptions
from bert_tf.tasks.tagging.tagging_options import TaggingOptions
from bert_tf.tasks.tagging.words import TaggingTask
from bert_tf.tasks.task import FineTuningTask
from bert_tf.tasks.text_records import target_of
from bert_tf.training.device_steps import prediction_step
from bert_tf.training.evaluation import Predictor
from bert_tf.training.strategy import create_strategy

Step = Callable[[Any], Arrays]

# A head -> the task, its options and its command; without a head vectors of texts.
_TASKS: dict[str, tuple[Callable[..., FineTuningTask], type[options.Options], str]] = {
    names.CLASSIFIER: (ClassificationTask, ClassifierOptions, "run_classifier"),
    names.EMBEDDING: (EmbeddingTask, EmbeddingOptions, "run_embeddings"),
    names.TAGGING: (TaggingTask, TaggingOptions, "run_ner"),
    names.SPAN: (SquadTask, SquadOptions, "run_squad"),
    names.MULTIPLE_CHOICE: (ChoiceTask, ChoiceOptions, "run_swag"),
}
_SPLIT = "dev"
_NUM_TIMED = 50  # examples, one after the other
# Scores of some of SQuAD 2.0's questions, by its best threshold, by strict entities.
_NOT_SHOWN = ("HasAns_", "NoAns_", "best_", "strict_")


def open_task(
    source: Source,
    eval_file: str,
    columns: Mapping[str, str],
    *,
    has_other_texts: bool = False,
) -> FineTuningTask:
    """The task of a model, which evaluates it on `eval_file`.

    It is read as in the run, but for `columns`: export_model's flags, of which those of
    texts may be for another file.
    """
    of_run = options.flags_of_run(source.folder)
    heads = names.heads_of(source.weights) or [names.EMBEDDING]
    if names.CLASSIFIER in heads and of_run.get("window_pooling") == "attention":
        raise InputError(
            f"{source.path} attends to several windows of a text, which neither onnx"
            " nor litert does: leave `eval_file` out."
        )
    if len(heads) > 1 or heads[0] not in _TASKS:
        raise InputError(
            "`eval_file` is for classifiers, taggers, models of SQuAD and of choices,"
            f" and sentence vectors (`heads=none`); {source.path} has the"
            f" {' and the '.join(heads)} head: leave it out."
        )
    make_task, kind, command = _TASKS[heads[0]]
    if kind is EmbeddingOptions:
        columns = _of_vectors(columns)
    known = options.declarations(kind)
    useless = [name for name in columns if name not in known]
    if useless and not has_other_texts:
        raise InputError(
            f"`{useless[0]}` has no effect: {command}, which reads the `eval_file` of"
            " such a model, has no such columns. Leave it out."
        )
    tokenizer, config = load_tokenizer(source), source.require_config()
    length = of_run.get("max_seq_length") or _sentences(source).max_seq_length
    length = length or options.default_of(kind, "max_seq_length")
    of_data = (options.DATA, options.LENGTHS, options.TASK)
    values = {
        **{
            name: of_run[name]
            for name in options.deciding(kind, "reading", "numbers")
            if name in of_run and options.title_of(kind, name) in of_data
        },
        **_of_model(kind, source, eval_file, of_run),
        **columns,
        "max_seq_length": min(length, config.max_position_embeddings),
        "tfds_name": None,
        "output_dir": source.folder,
    }
    use, file = "do_eval", "dev_file"
    if kind is SquadOptions:
        use, file = "do_predict", "predict_file"
    values |= {use: True, file: eval_file}
    try:
        task = make_task(
            kind(
                **{name: values[name] for name in known.keys() & values},
                given_names=frozenset([file]),
            ),
            loading.ModelFiles(
                config,
                tokenizer.vocabulary,
                tokenizer.do_lower_case,
                tokenizer.segmenter,
                source,
            ),
            create_strategy(),
        )
    except InputError as error:
        raise InputError(f"`eval_file`, as {command} reads it: {error}") from error
    if isinstance(task, SquadTask) and not task.splits[_SPLIT].have_answers:
        raise InputError(f"{eval_file}: not all questions have a known answer.")
    return task


def _sentences(source: Source) -> Any:
    return sentence_settings(folder_of(source.path))


def _of_vectors(columns: Mapping[str, str]) -> dict[str, Any]:
    """The columns of scored pairs, as run_embeddings names them."""
    texts = [columns[n] for n in ("text_a_column", "text_b_column") if n in columns]
    found = {"text_columns": texts, "score_column": columns.get("label_column")}
    return {name: value for name, value in found.items() if value}


def _of_model(
    kind: type[options.Options],
    source: Source,
    eval_file: str,
    of_run: Mapping[str, Any],
) -> dict[str, Any]:
    """The options that the model, and without a run the file, decide."""
    if kind is ClassifierOptions:
        target = target_of(source)
        return {
            "labels": target.labels,
            "regression": target.kind == REGRESSION,
            "several_labels": target.kind == MULTI_LABEL,
            "init_head": False,  # the labels are the head's own
            "xnli_language": options.default_of(kind, "xnli_language"),
        }
    if kind is TaggingOptions:
        return {} if "format" in of_run else {"format": "auto"}
    if kind is not SquadOptions:
        return {}
    values: dict[str, Any] = {"num_workers": 1}
    found = null_threshold.read(source.folder, source.checkpoint)
    if found is not None:
        values["null_score_diff_threshold"] = found
    if "version_2_with_negative" not in of_run:
        questions = reading.read_file(eval_file, version_2_with_negative=True)
        is_v2 = any(one.is_impossible for one in questions)
        values["version_2_with_negative"] = is_v2
    return values


def _of_texts(step: Step, pooling: str) -> Step:
    """An encoder's step, for records of N texts, [B, N, S], as BertEmbedder has it."""

    def run(batch: Arrays) -> Arrays:
        shape = batch["input_ids"].shape
        rows = {n: np.reshape(batch[n], [-1, shape[-1]]) for n in onnx_graph.INPUTS}
        states = np.asarray(step(rows)["sequence_output"], np.float32)
        vectors = pooled_tokens(states, rows["input_mask"], pooling)
        vectors = ops.convert_to_numpy(vectors)
        return {"embeddings": vectors.reshape(*shape[:-1], -1)}

    return run


def _steps(task: FineTuningTask, source: Source, path: str) -> list[Step]:
    """The checkpoint's and the export's steps: batch -> outputs."""
    has_head = task.head != names.EMBEDDING
    steps: list[Step]
    if path.endswith(ONNX_NAME):
        content = onnx_graph.build(source).SerializeToString()
        steps = [OnnxModel(content), OnnxModel(path)]
    else:
        load = loading.load_model if has_head else loading.load_encoder
        model = load(source, *[task.head] * has_head)
        step = prediction_step(model, create_strategy(), by_pieces=False)
        steps = [step, runtimes.LiteRtModel(path)]
    if has_head:
        return steps
    pooling = _sentences(source).pooling or "mean"
    return [_of_texts(step, pooling) for step in steps]


def _answers(task: FineTuningTask, found: Any) -> np.ndarray | None:
    """The predictions that are equal or not, [N] or [N, C]; None for vectors."""
    if isinstance(task, LabelledTask):
        return task.featurizers[_SPLIT].target.predictions(found)
    if isinstance(task, SquadTask):
        return np.array([*found.texts().values()])
    return found.label_ids if isinstance(task, TaggingTask) else None


def compare(
    task: FineTuningTask, source: Source, format_: str, folder: str, name: str
) -> None:
    """Prints what an export costs, and gains, on a task's examples."""
    files_of = {"onnx": ONNX_NAME, "litert": runtimes.LITERT_NAME}
    path = os.path.join(folder, files_of[format_])
    steps = _steps(task, source, path)
    found = [task.predict(_SPLIT, Predictor(name, step).run) for step in steps]
    records = task.records(_SPLIT)
    times, difference = [], 0.0
    for row in range(min(len(records), _NUM_TIMED)):
        batch = records.padded(np.array([row]), records.lengths[row])
        began = time.perf_counter()
        before = steps[0](batch)
        between = time.perf_counter()
        after = steps[1](batch)
        times.append((between - began, time.perf_counter() - between))
        for key in {*before} & {*after}:
            apart = np.abs(np.asarray(before[key]) - after[key]).max()
            difference = max(difference, float(apart))
    scores = [task.score(_SPLIT, each) for each in found]
    shown = [
        n
        for n in task.metrics
        if n in scores[0] and not n.endswith("loss") and not n.startswith(_NOT_SHOWN)
    ]
    width = max(10, *map(len, shown)) + 2
    print(f"{'':12}{''.join(f'{n:>{width}}' for n in shown)}{'ms each':>12}{'MB':>8}")
    sizes = 4 * sum(map(math.prod, source.weights.shapes.values())), files.size(path)
    for each, of_each, size, took in zip(
        ("checkpoint", name), scores, sizes, np.median(times, axis=0), strict=True
    ):
        cells = "".join(f"{of_each[n]:{width}.4f}" for n in shown)
        print(f"{each:12}{cells}{1e3 * took:12.2f}{size / 1e6:8.1f}")
    said = f"the outputs of {len(times)} examples differ by at most {difference:.2g}."
    one, other = (_answers(task, each) for each in found)
    if one is not None:
        is_other = (one != other).reshape(len(one), -1).any(axis=1)
        said = f"{is_other.sum()} of {len(one)} answers differ; {said}"
    print(said)
