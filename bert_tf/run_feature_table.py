r"""Compares ways to use BERT for tagging, as in the paper's Table 7.

    python -m bert_tf.run_feature_table --do_lower_case=False \
        --init_checkpoint=$BERT_BASE_DIR/bert_model.ckpt \
        --train_file=$CONLL_DIR/eng.train --dev_file=$CONLL_DIR/eng.testa \
        --output_dir=/tmp/feature_table

It fine-tunes the model, and trains a BiLSTM on each choice of its layers, like run_ner
and with its flags; prints the development scores next to the paper's, and writes them
to feature_table.md. Each way has its own folder; the same command again resumes.
"""

import dataclasses
import os
from collections.abc import Iterator
from typing import Any

from absl import logging

from bert_tf import cli, files, run_ner
from bert_tf.options import option, with_default
from bert_tf.tasks.tagging import tagging_options
from bert_tf.training.training_options import Evaluates, Trains

_WAYS = tuple(tagging_options.PAPER_DEV_F1)

# What only some of the ways have a use for.
_OF_FEATURES = ("feature_dir", "bilstm_size", "bilstm_dropout")
_OF_FINE_TUNING = ("frozen_layers", "layerwise_learning_rate_decay", "recompute")


@dataclasses.dataclass(frozen=True, kw_only=True)
class FeatureTableOptions(tagging_options.TaggingOptions):
    """run_ner's options, and which ways are compared."""

    do_train: bool = with_default(Trains, "do_train", True)
    do_eval: bool = with_default(Evaluates, "do_eval", True)
    ways: tuple[str, ...] = option(_WAYS, "The ways to compare.", choices=_WAYS)
    bilstm_learning_rate: float = option(
        tagging_options.BILSTM_LEARNING_RATE,
        "The BiLSTM's learning rate; --learning_rate is for fine-tuning.",
        least=0.0,
    )
    bilstm_epochs: float = option(
        tagging_options.BILSTM_EPOCHS,
        "The BiLSTM's epochs; --num_train_epochs is for fine-tuning.",
        least=0.0,
    )

    def problems(self) -> Iterator[str]:
        """What the table is not made of."""
        yield from super().problems()
        if not self.ways:
            yield f"`ways` must be of {', '.join(_WAYS)}."
        if self.distribution == "multi_worker":
            yield (
                "`distribution=multi_worker`: the ways run one after the other on one"
                " machine; on several, give each to run_ner --features."
            )
        if self.features is not None:
            yield "`features`: `ways` says which are compared; leave this one out."
        if not self.do_eval:
            yield "`do_eval`: the table is of the development set; leave this one out."

    def useless_features(self) -> Iterator[str]:
        """Nothing: some ways have features, and some have not."""
        yield from ()

    def of_way(self, way: str) -> tagging_options.TaggingOptions:
        """run_ner's options for one of the ways."""
        changes: dict[str, Any] = {"output_dir": os.path.join(self.output_dir, way)}
        useless = _OF_FEATURES
        if way != tagging_options.FINE_TUNED:
            useless = _OF_FINE_TUNING
            own_folder = os.path.join(self.output_dir, "features")
            changes |= {
                "features": way,
                "feature_dir": self.feature_dir or own_folder,
                "learning_rate": self.bilstm_learning_rate,
                "num_train_epochs": (self.bilstm_epochs,),
            }
        fields = tagging_options.TaggingOptions.__dataclass_fields__
        changes |= {name: fields[name].default for name in useless}
        if self.given_names is not None:
            given = self.given_names.union(changes).difference(useless)
            changes["given_names"] = given
        return self.as_kind(tagging_options.TaggingOptions, **changes)


def run(options: FeatureTableOptions) -> None:
    """Goes through the ways, and shows what came out."""
    cli.import_tensorflow()
    from bert_tf.pictures import figure, table
    from bert_tf.tasks import finetuning
    from bert_tf.tasks.tagging import frozen_features

    found = finetuning.files_of(options, options.output_dir)
    for way in {*options.ways} - {tagging_options.FINE_TUNED}:
        frozen_features.check_features(way, found)  # now, not after the others
    rows = []
    for way in dict.fromkeys(options.ways):
        own = options.of_way(way)
        logging.info("***** %s *****", way)
        run_ner.run(own)
        path = os.path.join(own.output_dir, "eval_results.txt")
        results = files.read_results(path)
        metric = "f1" if "f1" in results else "accuracy"
        ours = figure(results[metric], 100, 2)
        rows.append([way, ours, figure(tagging_options.PAPER_DEV_F1[way], digits=1)])
        header = ["features", f"ours, {metric}"]
        text = table([*header, "BERT-BASE, CoNLL-2003 (Devlin et al. 2018), f1"], rows)
        # After each, so that the table can be read while the next one trains.
        files.write_atomically(
            os.path.join(options.output_dir, "feature_table.md"), text
        )
    print(text, end="", flush=True)


main = cli.command(run)

if __name__ == "__main__":
    main()
