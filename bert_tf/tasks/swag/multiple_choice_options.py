"""The options of multiple choice."""

from collections.abc import Iterator

from bert_tf.base import options
from bert_tf.base.options import Path, option, with_default
from bert_tf.tasks.run_options import FineTuningOptions, TfdsOptions, tfds_splits


class ChoiceOptions(
    FineTuningOptions,
    TfdsOptions,
    title=options.DATA,
    decides="numbers",
    hides=("class_weights",),
):
    """Multiple choice: the rates and batches of Devlin et al. 2018, section 4.4."""

    train_batch_size: int = with_default(FineTuningOptions, "train_batch_size", 16)
    eval_batch_size: int = with_default(FineTuningOptions, "eval_batch_size", 16)
    predict_batch_size: int = with_default(FineTuningOptions, "predict_batch_size", 16)
    learning_rate: float = with_default(FineTuningOptions, "learning_rate", 2e-5)
    train_file: str | None = option(
        None,
        "Examples to train on, such as SWAG's train.csv: CSV, TSV or JSON lines,"
        " also as .gz, .bz2 or .xz.",
        path=Path.FILE,
        needed_for=("do_train",),
        decides="nothing",
    )
    dev_file: str | None = option(
        None,
        "Examples to score the model on, such as SWAG's val.csv.",
        path=Path.FILE,
        needed_for=("do_eval", "eval_steps"),
        decides="nothing",
    )
    test_file: str | None = option(
        None,
        "Examples to predict, such as SWAG's test.csv; labels are ignored.",
        path=Path.FILE,
        needed_for=("do_predict",),
        decides="nothing",
    )
    tfds_name: str | None = option(
        None,
        "Read a TensorFlow dataset instead of files: hellaswag, or any other one"
        " with a premise and endings.",
    )
    tfds_splits: tuple[str, ...] = tfds_splits(
        {
            "train": "to train on",
            "validation": "to score the model on",
            "test": "to predict",
        }
    )
    # The names of a table's columns, or of the fields of JSON lines.
    premise_column: str | None = option(
        None,
        "Column of the premise. Default: the first that exists of sent1 (SWAG),"
        " ctx_a (HellaSwag), ctx and context.",
    )
    start_column: str | None = option(
        None,
        "Column of the beginning that all endings share; empty for none. Default: sent2"
        " (SWAG) or ctx_b (HellaSwag), if it exists.",
    )
    ending_columns: tuple[str, ...] | None = option(
        None,
        "Columns of the endings, two or more, separated by commas; or one field with a"
        " list of them. Default: endings, or ending0, ending1 and so on.",
    )
    label_column: str | None = option(
        None, "Column of the right ending. Default: label."
    )
    labels: tuple[str, ...] | None = option(
        None, "The label of each ending, such as A,B,C,D. Default: 0,1,2 and so on."
    )

    def problems(self) -> Iterator[str]:
        """Yields options that exclude each other."""
        yield from super().problems()
        yield from self.need_one_of("do_train", "do_eval", "do_predict")
        if self.max_seq_length < 5:
            yield f"`max_seq_length={self.max_seq_length}` must be at least 5."
