"""The rows of benchmarks/speedrun.py: what trains, and how."""

import dataclasses
import json
import os
import pathlib
import shutil
import sys
from typing import Any

from parts.commands import command, finished
from parts.results import PEERS

OURS, TRANSFORMERS, KERAS_HUB = "bert_tf", "transformers", "KerasHub"
LENGTH = 128
CRAMMING = {  # Geiping and Goldstein 2022, but for the batch: theirs is for billions
    "learning_rate": 1e-3,
    "per_device_train_batch_size": 32,
    "mlm_probability": 0.25,
    "max_grad_norm": 0.5,
    "adam_beta2": 0.98,
    "lr_scheduler_type": "linear",
    "warmup_steps": 0.5,  # a share: their triangle
}
BUDGET = {  # --recipe=budget with AdamW from random positions, as far as it is told
    "learning_rate": 1e-3,
    "per_device_train_batch_size": 32,
    "mlm_probability": 0.25,
    "weight_decay": 0.01,
    "adam_epsilon": 1e-6,
    "lr_scheduler_type": "warmup_stable_decay",
    "warmup_steps": 0.06,  # a share
}


@dataclasses.dataclass(frozen=True)
class Row:
    """One way to train.

    Attributes:
        side: whose script runs.
        flags: that it is given.
        source: where the idea is from.
        dropout: of the model while it trains.
    """

    side: str
    flags: dict[str, Any]
    source: str
    dropout: float = 0.1


_BUDGET = {"recipe": "budget"}
_ADAMW = {"optimizer": "adamw", "initial_positions": "random"}
_MUON = {"optimizer": "muon", "learning_rate": 4e-3}
ROWS = {
    "run_mlm.py": Row(TRANSFORMERS, {}, "its defaults"),
    "run_mlm.py by cramming": Row(
        TRANSFORMERS, CRAMMING, "Geiping and Goldstein 2022", dropout=0.0
    ),
    "run_mlm.py by budget": Row(
        TRANSFORMERS, BUDGET, "`budget` with AdamW", dropout=0.0
    ),
    "KerasHub": Row(
        KERAS_HUB,
        {
            "batch_size": 128,
            "learning_rate": 5e-4,
            "mask_rate": 0.25,
            "jit_compile": False,
        },
        "keras.io's page on pre-training",
    ),
    "paper": Row(OURS, {"recipe": "paper"}, "Devlin et al. 2018"),
    "budget with adamw": Row(
        OURS, _BUDGET | _ADAMW, "Izsak et al. 2021, Geiping and Goldstein 2022"
    ),
    "budget from random positions": Row(
        OURS, _BUDGET | _MUON | {"initial_positions": "random"}, "Jordan et al. 2024"
    ),
    "budget from sinusoids": Row(
        OURS,
        _BUDGET | _MUON | {"initial_positions": "sinusoids"},
        "Vaswani et al. 2017",
    ),
    "budget": Row(
        OURS,
        _BUDGET | _MUON | {"learning_rate": 3e-3, "initial_positions": "neighbours"},
        "Trockman and Kolter 2023",
    ),
}


def row(name: str) -> Row | None:
    """Returns a row by its name, also one of ours with FLAG=VALUE."""
    base, _, text = name.rpartition(" with ")
    changes = text.split("&")
    if not all("=" in change for change in changes) or base not in ROWS:
        return ROWS.get(name)
    if ROWS[base].side != OURS:
        return None
    changed = dict(change.split("=", 1) for change in changes)
    return Row(OURS, ROWS[base].flags | changed, "a trial")


@dataclasses.dataclass(frozen=True)
class Trained:
    """A run that has ended.

    Attributes:
        seconds: of all its starts; the peers' of the last one.
        model: its folder.
        curve: [steps, loss], by its own masks; KerasHub's of the last start.
    """

    seconds: float
    model: pathlib.Path
    curve: list[list[float]]


@dataclasses.dataclass(frozen=True)
class Race:
    """What all rows share.

    Attributes:
        folder: has text.txt, vocab.txt, text.tfrecord and bert_config.json.
        pythons: side -> its Python.
        run_mlm: transformers' script.
    """

    folder: pathlib.Path
    pythons: dict[str, str]
    run_mlm: str | None

    def train(self, row: Row, steps: int, seed: int, output: pathlib.Path) -> Trained:
        """Trains; a run that was killed goes on from what it has saved."""
        made = {"flags": row.flags, "steps": steps, "seed": seed}
        made_with = output / "made_with.json"
        if not made_with.exists() or json.loads(made_with.read_text()) != made:
            shutil.rmtree(output, ignore_errors=True)
            output.mkdir(parents=True)
            made_with.write_text(json.dumps(made))
        train = {
            OURS: self._ours,
            TRANSFORMERS: self._transformers,
            KERAS_HUB: self._keras_hub,
        }[row.side]
        return train(row, steps, seed, output)

    def _ours(self, row: Row, steps: int, seed: int, output: pathlib.Path) -> Trained:
        config = self.folder / "bert_config.json"
        # A row with stages before the training has fewer steps of its own.
        given = {"bert_config_file": config, "num_train_steps": steps} | row.flags
        if row.flags.get("recipe") == "paper":  # the same share of the steps
            given["num_warmup_steps"] = steps // 100
        finished(
            command(
                "run_pretraining",
                input_file=self.folder / "text.tfrecord",
                output_dir=output / "run",
                do_train=True,
                random_seed=seed,
                **given,
            )
        )
        shutil.rmtree(output / "model", ignore_errors=True)
        finished(
            command(
                "export_model",
                checkpoint=output / "run",
                format="huggingface",
                output_dir=output / "model",
            )
        )
        lines = (output / "run" / "metrics.jsonl").read_text().splitlines()
        entries = [json.loads(line) for line in lines]
        entries = [one for one in entries if "learning_rate" in one]
        curve = [[one["step"], one["loss"]] for one in entries]
        return Trained(entries[-1]["seconds"], output / "model", curve)

    def _transformers(
        self, row: Row, steps: int, seed: int, output: pathlib.Path
    ) -> Trained:
        config = output / "config"
        config.mkdir(exist_ok=True)
        fields = json.loads((self.folder / "bert_config.json").read_text())
        fields |= {
            "model_type": "bert",
            "hidden_dropout_prob": row.dropout,
            "attention_probs_dropout_prob": row.dropout,
        }
        (config / "config.json").write_text(json.dumps(fields))
        shutil.copy(self.folder / "vocab.txt", config)
        (config / "tokenizer_config.json").write_text(
            json.dumps({"tokenizer_class": "BertTokenizer", "do_lower_case": True})
        )
        given = {
            "config_name": config,
            "tokenizer_name": config,
            "train_file": self.folder / "text.txt",
            "max_seq_length": LENGTH,
            "do_train": True,
            "max_steps": steps,
            "save_strategy": "steps",
            "save_steps": max(500, steps // 20),  # none in a pace
            "save_total_limit": 1,
            "report_to": "none",
            "seed": seed,
            "output_dir": output / "model",
            "cache_dir": self.folder / "datasets",
            **row.flags,
        }
        if row.flags.get("lr_scheduler_type") == "warmup_stable_decay":
            decay = {"num_decay_steps": steps // 5, "decay_type": "linear"}
            given["lr_scheduler_kwargs"] = json.dumps(decay)
        if saved := sorted(output.glob("model/checkpoint-*"), key=os.path.getmtime):
            given["resume_from_checkpoint"] = saved[-1]
        finished(
            [
                *(self.pythons[TRANSFORMERS], str(self.run_mlm)),
                *(f"--{name}={value}" for name, value in given.items()),
            ]
        )
        state = json.loads((output / "model" / "trainer_state.json").read_text())
        entries = [one for one in state["log_history"] if "loss" in one]
        curve = [[one["step"], one["loss"]] for one in entries]
        seconds = state["log_history"][-1]["train_runtime"]
        return Trained(seconds, output / "model", curve)

    def _keras_hub(
        self, row: Row, steps: int, seed: int, output: pathlib.Path
    ) -> Trained:
        job = {
            "text": self.folder / "text.txt",
            "vocab": self.folder / "vocab.txt",
            "config": self.folder / "bert_config.json",
            "length": LENGTH,
            "dropout": row.dropout,
            "steps": steps,
            "seed": seed,
            "output": output / "preset",
            "result": output / "result.json",
            **row.flags,
        }
        script = PEERS / "kerashub_training.py"
        finished([sys.executable, str(script), json.dumps(job, default=str)])
        result = json.loads((output / "result.json").read_text())
        return Trained(result["seconds"], output / "preset", result["curve"])
