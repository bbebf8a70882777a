"""The options of training sentence vectors."""

from collections.abc import Iterator

from bert_tf.addons.methods.loss_options import LossOptions
from bert_tf.base import options
from bert_tf.base.options import Path, option
from bert_tf.tasks.run_options import FineTuningOptions

# Options of other heads' scores, and of layers that `bert_tf.load` cannot embed with.
_OF_SCORES = tuple(name for name in LossOptions.__annotations__ if name != "mixout")
_OF_LAYERS = ("bilstm", "cls_normalization", "layer_mixture")


class EmbeddingOptions(
    FineTuningOptions,
    title=options.DATA,
    decides="numbers",
    hides=(
        *("do_predict", "predict_batch_size", "train_pooler", "init_head"),
        *_OF_LAYERS,
        *_OF_SCORES,
    ),
):
    """Vectors of texts: Reimers and Gurevych 2019, learning rate 2e-5."""

    learning_rate: float = options.with_default(
        FineTuningOptions, "learning_rate", 2e-5
    )
    pooling: str | None = option(
        None,
        "What a text's vector is: the mean or the maximum of its tokens' outputs, [CLS]"
        " and [SEP] included, or the output at [CLS]. Default: as in --init_checkpoint,"
        " if that is a sentence-transformers folder or a run of this command, else"
        " mean.",
        choices=("mean", "max", "cls"),
        title=options.MODEL,
        decides="reading",
    )
    normalize: bool = option(
        True,
        "Whether vectors have length 1 where the trained model is used. Losses and"
        " scores are of the cosine, which does not depend on it.",
        title=options.MODEL,
        decides="reading",
    )
    loss: str | None = option(
        None,
        "multiple_negatives_ranking: the positive against all others of the batch;"
        " simcse: the same for a text and itself, under another dropout mask;"
        " cosine_similarity: the squared error of the cosine; cosent: the order of the"
        " cosines. Default: cosent for pairs with a score, simcse for single texts,"
        " else multiple_negatives_ranking.",
        choices=("multiple_negatives_ranking", "simcse", "cosine_similarity", "cosent"),
        title=options.TRAINING,
    )
    scale: float = option(
        20.0,
        "What the loss multiplies cosines by: 1 / temperature. It has no effect on"
        " cosine_similarity.",
        above=0.0,
        title=options.TRAINING,
    )
    train_file: str | None = option(
        None,
        "Texts to train on: .csv, .jsonl, .json, .parquet, else columns separated by"
        " tabs; compressed or not. A row has a text; or two that mean the same, perhaps"
        " with a third that does not; or two and a score.",
        path=Path.FILE,
        needed_for=("do_train",),
        decides="nothing",
    )
    dev_file: str | None = option(
        None,
        "Pairs to score the model on, with or without scores. Without it a part of the"
        " training file is held out (--dev_share), unless that has single texts.",
        path=Path.FILE,
        decides="nothing",
    )
    dev_share: float = option(
        0.1,
        "Without --dev_file: share of the training examples to hold out for"
        " development, by --random_seed; 0 for none.",
        least=0.0,
        below=1.0,
    )
    has_header: bool = option(
        True, "Whether the first row names the columns; if not, give their numbers."
    )
    text_columns: tuple[str, ...] | None = option(
        None,
        "Columns of the texts, by their names or numbers from 0: one text, two that"
        " mean the same, or these and one that does not. Default: the first that exists"
        " of anchor, sentence1, text_a, query, question, sentence and text; then of"
        " positive, sentence2, text_b, answer and passage; then negative.",
    )
    score_column: str | None = option(
        None,
        "Column of the score of the two texts; empty for none. Default: the first that"
        " exists of score, similarity_score and label.",
    )
    max_score: float = option(
        1.0,
        "The score of texts that mean the same, such as 5 for STS-B: scores are divided"
        " by it.",
        above=0.0,
    )

    def problems(self) -> Iterator[str]:
        """Yields options that exclude each other, and missing files."""
        yield from super().problems()
        yield from self.need_one_of("do_train", "do_eval")
        if self.looks_at_dev and not self.dev_file and not self.holds_out:
            yield "`dev_file` is needed to evaluate, or a `dev_share` of `train_file`."
        if len(self.text_columns or ()) > 3:
            yield "`text_columns` must name one, two or three columns."
        if self.max_seq_length < 3:
            yield f"`max_seq_length={self.max_seq_length}` must be at least 3."

    @property
    def holds_out(self) -> bool:
        """Whether the development set is a part of the training file."""
        return bool(self.train_file) and not self.dev_file and self.dev_share > 0.0
