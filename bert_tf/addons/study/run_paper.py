"""The tables of Devlin et al. 2018 for any text, tasks and sizes."""

import dataclasses
import itertools
import json
import math
import os
import re
from collections.abc import Callable, Iterator
from typing import Any

from absl import logging

from bert_tf import run_classifier, run_ner, run_pretraining, run_squad, run_swag
from bert_tf.addons.study.paper_tables import (
    GIVEN,
    LM,
    NER,
    PRETRAININGS,
    SQUAD_2,
    SWAG,
    TABLES,
    Cell,
    Column,
    Row,
    Table,
    markdown,
    picture,
    sized,
)
from bert_tf.base import cli, files
from bert_tf.base.config import BertConfig
from bert_tf.base.errors import InputError
from bert_tf.base.finished import FinishedResults, keep_settings
from bert_tf.base.options import (
    DATA,
    LENGTHS,
    REQUIRED,
    Path,
    declarations,
    option,
    with_default,
)
from bert_tf.base.shared_options import DeviceOptions, LengthOptions, ModelOptions
from bert_tf.records import create_pretraining_data
from bert_tf.tasks import run_log
from bert_tf.tasks.pretraining_options import PretrainingOptions
from bert_tf.tasks.run_options import SelectionOptions
from bert_tf.tasks.tagging.tagging_options import (
    BILSTM_EPOCHS,
    BILSTM_LEARNING_RATE,
    FEATURE_CHOICES,
)
from bert_tf.text.vocabulary import Vocabulary

# Share of a pre-training between two kept checkpoints: figure 5 needs them.
_CHECKPOINTS = 5
# The number of steps whose time decides how many fit in a budget of minutes.
_MEASURED_STEPS = 60
_RESULTS = "eval_results.txt"


class PaperOptions(ModelOptions, SelectionOptions, DeviceOptions, decides="nothing"):
    """The tables to make, and their text, tasks and sizes."""

    output_dir: str = with_default(PretrainingOptions, "output_dir", REQUIRED)
    bert_size: str | None = with_default(PretrainingOptions, "bert_size", None)
    init_layers: tuple[int, ...] | None = with_default(
        PretrainingOptions, "init_layers", None
    )
    max_seq_length: int = with_default(
        LengthOptions, "max_seq_length", 128, title=LENGTHS
    )
    # The text and the tasks.
    input_file: str | None = option(
        None,
        "Text to pre-train on, as for create_pretraining_data.",
        path=Path.FILES,
        title=DATA,
    )
    eval_file: str | None = option(
        None, "Held-out text, for the perplexity.", path=Path.FILES, title=DATA
    )
    glue_dir: str | None = option(
        None,
        "Folder with GLUE's folders; a task without one is left out.",
        path=Path.FOLDER,
        title=DATA,
    )
    squad_dir: str | None = option(
        None,
        "Folder with train-v1.1.json and dev-v1.1.json, and the two files of 2.0.",
        path=Path.FOLDER,
        title=DATA,
    )
    triviaqa_file: str | None = option(
        None,
        "TriviaQA's qa/wikipedia-train.json, to train on before SQuAD 1.1.",
        path=Path.FILE,
        title=DATA,
    )
    swag_dir: str | None = option(
        None, "Folder with SWAG's train.csv and val.csv.", path=Path.FOLDER, title=DATA
    )
    ner_dir: str | None = option(
        None,
        "Folder with tagged words: train.txt, dev.txt and test.txt.",
        path=Path.FOLDER,
        title=DATA,
    )
    table: tuple[str, ...] = option(
        ("5",), "The tables to make, such as 5 or 5,8.", choices=tuple(TABLES)
    )
    tasks: tuple[str, ...] = option(
        (), "Run only these tasks, such as MRPC,NER. Default: all whose files exist."
    )
    budget: str = option(
        "100000",
        "Pre-training steps per row, or minutes per row, such as 30m, measured once on"
        " this machine.",
        decides="numbers",
    )
    pretraining_batch_size: int = option(
        256, "Sequences per pre-training step.", least=1, decides="numbers"
    )
    pretraining_learning_rate: float = option(
        1e-4, "Peak learning rate of pre-training.", least=0.0, decides="numbers"
    )
    pretraining_seq_length: int = option(
        128, "Tokens per pre-training sequence.", least=8, decides="numbers"
    )
    learning_rates: tuple[float, ...] | None = with_default(
        SelectionOptions, "learning_rates", (5e-5, 3e-5, 2e-5)
    )
    num_restarts: int = with_default(SelectionOptions, "num_restarts", 5)
    random_seed: int = option(
        12345,
        "Seed of pre-training, and the first seed of the tasks.",
        decides="numbers",
    )

    def problems(self) -> Iterator[str]:
        """Yields missing inputs of the tables."""
        yield from super().problems()
        yield from self.refuse_together("bert_config_file", "bert_size")
        yield from self.need_one_given(
            "bert_config_file", "bert_size", "init_checkpoint"
        )
        if not re.fullmatch(r"[1-9]\d*m?", self.budget):
            yield f"`budget={self.budget}` must be steps, or minutes such as 30m."
        known = {column.task for table in TABLES.values() for column in table.columns}
        if unknown := sorted({*self.tasks} - known):
            yield f"`tasks={unknown[0]}` must be one of {', '.join(sorted(known))}."
        trained = {
            name
            for number in self.table
            for name in self.wanted(TABLES[number])
            if name != GIVEN
        }
        if trained:
            for name in ("input_file", "eval_file", "vocab_file"):
                if getattr(self, name) is None:
                    yield f"Tables that pre-train need `{name}`."
            if not (self.bert_size or self.bert_config_file):
                yield "Give the base model: `bert_size`, or `bert_config_file`."

    @property
    def of_pretraining(self) -> dict[str, Any]:
        """The settings that all pre-trained models of a folder share."""
        names = [
            *("input_file", "eval_file", "vocab_file", "do_lower_case", "budget"),
            *("bert_size", "bert_config_file", "random_seed"),
            *(name for name in self.as_flags() if name.startswith("pretraining_")),
        ]
        return {name: getattr(self, name) for name in names}

    def wanted(self, table: Table) -> set[str]:
        """Returns the models of a table; the given one in place of the base model."""
        if self.init_checkpoint and table is TABLES["7"]:
            return {GIVEN}
        return table.pretrainings


def run(options: PaperOptions) -> None:
    """Makes the tables one after the other."""
    cli.import_tensorflow(options)
    maker = _Maker(options)
    for number in dict.fromkeys(options.table):
        print(maker.make(number, TABLES[number]), flush=True)


class _Maker:
    """The parts that tables share: records, pre-trained models, cells."""

    def __init__(self, options: PaperOptions) -> None:
        self._options = options
        keep_settings(
            self._path("pretraining.json"), options.of_pretraining, "models pre-trained"
        )
        self._finished: FinishedResults[bool] = FinishedResults(
            self._path("paper.json"), bool
        )

    def make(self, number: str, table: Table) -> str:
        """Makes a table's cells, and writes it after each."""
        columns = [column for column in table.columns if self._is_at_hand(column)]
        if not columns:
            raise InputError(
                f"{table.title}: no files of its tasks are given"
                f" ({', '.join(column.name for column in table.columns)})."
            )
        cells: dict[str, dict[str, Cell]] = {}
        text = ""
        for row, column in itertools.product(table.rows, columns):
            if row.pretraining is None or self._is_too_shallow(table, row, column):
                continue
            cell = self._cell(table, row, column)
            cells.setdefault(row.name, {})[column.name] = cell
            values = {
                name: {column: dataclasses.asdict(c) for column, c in of.items()}
                for name, of in cells.items()
            }
            base = self._path(f"table_{number}" if number.isdigit() else number)
            text = markdown(table, columns, cells)
            for name, content in (
                (".md", text),
                (".json", json.dumps(values, indent=1) + "\n"),
                (".png", picture(table, columns, cells)),
            ):
                files.write_atomically(base + name, content)
        return text

    def _is_too_shallow(self, table: Table, row: Row, column: Column) -> bool:
        """Whether the model lacks the layers that a cell takes its features from."""
        features = {**row.options, **column.options}.get("features")
        if features is None:
            return False
        if GIVEN in self._options.wanted(table):
            from bert_tf.conversion.source import open_source

            config = open_source(str(self._options.init_checkpoint)).require_config()
        else:
            config = self._config()
        needed = FEATURE_CHOICES[str(features)].num_layers
        if config.num_hidden_layers >= needed:
            return False
        logging.info(
            "%s, %s, is left out: it needs %d layers, the model has %d.",
            *(row.name, column.name, needed, config.num_hidden_layers),
        )
        return True

    def _cell(self, table: Table, row: Row, column: Column) -> Cell:
        """Returns a row's scores on a column, made unless they are finished."""
        options = self._options
        name = column.pretraining or row.pretraining
        is_given = name == GIVEN or GIVEN in options.wanted(table)
        start = options.init_checkpoint if is_given else self._pretrained(name or "")
        if column.task == LM:
            results = files.read_results(os.path.join(str(start), _RESULTS))
            perplexity = math.exp(results["masked_lm_loss"])
            seed = str(options.random_seed)
            return Cell(by_seed={seed: perplexity}, metric=column.metric)
        if row.share < 1.0:
            every = max(1, self._steps() // _CHECKPOINTS)
            step = round(row.share * _CHECKPOINTS) * every
            start = os.path.join(str(start), f"model.ckpt-{step}")
        grid = ("learning_rates", "num_train_epochs", "train_batch_sizes")
        shared = (*grid, "num_restarts", "random_seed")
        values: dict[str, Any] = {name: getattr(options, name) for name in shared}
        length = options.value_if_given("max_seq_length")
        values |= {"init_checkpoint": start, "max_seq_length": length}
        protocol = {k: v for k, v in table.protocol.items() if not options.is_given(k)}
        values |= protocol | self._of_task(column) | dict(row.options)
        values |= dict(column.options)
        if row.second:
            values["second_checkpoint"] = self._pretrained(row.second)
        if "features" in values:
            values["learning_rates"] = (BILSTM_LEARNING_RATE,)
            values["num_train_epochs"] = (BILSTM_EPOCHS,)
            values["feature_dir"] = self._path("features")
        parts = [name, row.second, column.task, *sorted(row.options), *column.options]
        parts += [str(values.get("features", ""))]
        parts += [f"{row.share:.0%}" if row.share < 1.0 else ""]
        folder = self._path("tasks", "-".join(_plain(p) for p in parts if p))
        if not self._finished.find(folder, values):
            logging.info("***** %s: %s, %s *****", table.title, row.name, column.name)
            script, *_ = _task(column.task)
            run: Callable[..., Any] = cli.run_script
            if row.second:
                from bert_tf.addons.study import two_encoders

                run = two_encoders.fine_tune
            run(script, output_dir=folder, **values | self._given())
            self._finished.keep(folder, values, True)
        return _cell_of(folder, column)

    def _of_task(self, column: Column) -> dict[str, Any]:
        """Returns the files of a task, and the options of what to do."""
        options, task = self._options, column.task
        script, folder_option, names = _task(task)
        folder = getattr(options, folder_option) or ""
        values: dict[str, Any] = {"do_train": True}
        values |= {name: os.path.join(folder, file) for name, file in names.items()}
        if script is run_squad:
            values["do_predict"] = True
            if task == SQUAD_2:
                values["version_2_with_negative"] = True
            elif options.triviaqa_file:
                values["first_train_file"] = options.triviaqa_file
            if length := options.value_if_given("max_seq_length"):
                # Windows overlap, and questions leave room for them.
                values["doc_stride"] = min(128, length // 2)
                values["max_query_length"] = min(64, length // 2)
            return values
        if script is run_ner:
            values["do_predict"] = files.exists(values["test_file"])
            if not values["do_predict"]:
                del values["test_file"]
        elif script is run_classifier:
            values |= {"task_name": task, "best_metric": column.metric}
        return values | {"do_eval": True, "eval_batch_size": 64}

    def _is_at_hand(self, column: Column) -> bool:
        """Whether a column is wanted, and its task's files exist."""
        options, task = self._options, column.task
        if options.tasks and task not in (*options.tasks, LM):
            return False
        if task == LM:
            return True
        _, folder_option, names = _task(task)
        folder = getattr(options, folder_option) or ""
        needed = [next(iter(names.values()))]
        if column.split == "test":
            needed.append(names["test_file"])
        for path in (os.path.join(folder, name) for name in needed):
            if not folder or not files.exists(path):
                logging.info("%s is left out: no %s.", column.name, path)
                return False
        return True

    # Pre-training.

    def _pretrained(self, name: str) -> str:
        """Returns the folder of a pre-trained model, made unless it is finished."""
        folder = self._path("pretraining", name)
        if not files.exists(os.path.join(folder, _RESULTS)):
            logging.info("***** Pre-training: %s *****", name)
            self._pretrain(name, folder, self._steps(), do_eval=True)
        return folder

    def _pretrain(self, name: str, folder: str, steps: int, **values: Any) -> None:
        options = self._options
        changes = dict(PRETRAININGS[name])
        size = changes.pop("size", None)
        config_file = self._path("pretraining", f"{name}.json")
        config = self._config()
        files.make_folder(os.path.dirname(config_file))
        text = (sized(config, size) if size else config).to_json_string()
        files.write_atomically(config_file, text)
        records, held_out = (self._records(part) for part in ("input", "eval"))
        every = max(1, steps // _CHECKPOINTS)
        cli.run_script(
            run_pretraining,
            **{
                "output_dir": folder,
                "input_file": records,
                "eval_input_file": held_out,
                "bert_config_file": config_file,
                "do_train": True,
                "train_batch_size": options.pretraining_batch_size,
                "learning_rate": options.pretraining_learning_rate,
                "num_train_steps": steps,
                "num_warmup_steps": min(10_000, steps // 10),
                "save_checkpoints_steps": every,
                "keep_checkpoint_max": 0,
                "eval_batch_size": 64,
                "random_seed": options.random_seed,
                **changes,
                **values,
                **self._given(),
            },
        )

    def _config(self) -> BertConfig:
        """The base model, with the vocabulary's size."""
        options = self._options
        num_tokens = len(Vocabulary.from_file(str(options.vocab_file)))
        if options.bert_size:
            return BertConfig.from_size(options.bert_size, vocab_size=num_tokens)
        return BertConfig.from_json_file(str(options.bert_config_file))

    def _records(self, part: str) -> str:
        """Returns unmasked records of the text, which suit every row."""
        options = self._options
        path = self._path("records", f"{part}.tfrecord")
        files.make_folder(os.path.dirname(path))
        cli.run_script(
            create_pretraining_data,
            input_file=getattr(options, f"{part}_file"),
            output_file=path,
            vocab_file=options.vocab_file,
            do_lower_case=options.do_lower_case,
            max_seq_length=options.pretraining_seq_length,
            max_predictions_per_seq=math.ceil(0.16 * options.pretraining_seq_length),
            masking="dynamic",
            random_seed=options.random_seed,
        )
        return path

    def _steps(self) -> int:
        """The pre-training steps of each row."""
        budget = self._options.budget
        if not budget.endswith("m"):
            return int(budget)
        path = self._path("budget.json")
        if files.exists(path):
            return int(files.read_json(path)["num_train_steps"])
        folder = self._path("pretraining", "measured")
        self._pretrain("bert", folder, _MEASURED_STEPS, log_steps=_MEASURED_STEPS // 3)
        lines = files.read_text(os.path.join(folder, "metrics.jsonl")).splitlines()
        rate = json.loads(lines[-1])["steps_per_second"]
        steps = max(_CHECKPOINTS, int(60 * int(budget[:-1]) * rate))
        values = {"budget": budget, "num_train_steps": steps}
        files.write_atomically(path, json.dumps(values) + "\n")
        logging.info("%s are %d steps here.", budget, steps)
        return steps

    def _given(self) -> dict[str, Any]:
        """Returns the devices and the casing, for every command that computes."""
        options = self._options
        names = [*declarations(DeviceOptions), "do_lower_case"]
        return {
            name: options.value_if_given(name)
            for name in names
            if options.is_given(name)
        }

    def _path(self, *names: str) -> str:
        return os.path.join(self._options.output_dir, *names)


# Task -> its command, the option for its folder, and its files there by option.
_TASKS: dict[str, tuple[Any, str, dict[str, str]]] = {
    **{
        f"SQuAD {version}": (
            *(run_squad, "squad_dir"),
            {
                "train_file": f"train-v{version}.json",
                "predict_file": f"dev-v{version}.json",
            },
        )
        for version in ("1.1", "2.0")
    },
    SWAG: (run_swag, "swag_dir", {"train_file": "train.csv", "dev_file": "val.csv"}),
    NER: (
        *(run_ner, "ner_dir"),
        {f"{split}_file": f"{split}.txt" for split in ("train", "dev", "test")},
    ),
}


def _task(name: str) -> tuple[Any, str, dict[str, str]]:
    return _TASKS.get(name, (run_classifier, "glue_dir", {"data_dir": name}))


def _plain(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.%]+", "_", text)


def _cell_of(folder: str, column: Column) -> Cell:
    """Returns the scores of the settings whose mean over the seeds is best."""
    if column.split != "dev":
        # Only the best run has them.
        results = files.read_results(os.path.join(folder, _RESULTS))
        prefix = f"{column.split}_".replace("dev_", "eval_")
        metric = column.metric if prefix + column.metric in results else "accuracy"
        score = column.unit * results[prefix + metric]
        return Cell(by_seed={"best": score}, metric=metric)
    _, records = run_log.read(folder)
    runs = [one for one in records if one.status == run_log.FINISHED]
    if not runs:
        raise InputError(f"{folder}: no run has finished: all have diverged.")
    # Words without entities have no F1.
    there = runs[0].scores[1.0]
    metric = column.metric if column.metric in there else "accuracy"
    unit = column.unit if metric == column.metric else 100.0
    by_settings: dict[str, dict[str, float]] = {}
    for one in runs:
        settings, _, seed = one.settings.name.rpartition("_seed")
        score = unit * one.scores[1.0][metric]
        by_settings.setdefault(settings, {})[seed] = score
    cells = [
        Cell(by_seed=scores, settings=settings, metric=metric)
        for settings, scores in by_settings.items()
    ]
    return max(cells, key=lambda cell: cell.mean)
