"""The options of SQuAD's commands, in groups."""

from collections.abc import Iterator

import numpy as np

from bert_tf.base import options
from bert_tf.base.options import Path, option
from bert_tf.tasks.run_options import FineTuningOptions, TfdsOptions, tfds_splits


class SquadOptions(
    FineTuningOptions,
    TfdsOptions,
    title=options.DATA,
    decides="numbers",
    hides=("do_eval", "eval_batch_size", "label_smoothing", "class_weights"),
):
    """A run on SQuAD, and how scores become answers."""

    # The questions.
    train_file: str | None = option(
        None,
        "SQuAD's JSON file to train on, such as train-v1.1.json, or a table of"
        " questions (.csv, .tsv, .jsonl or .parquet).",
        path=Path.FILE,
        needed_for=("do_train",),
        decides="nothing",
    )
    predict_file: str | None = option(
        None,
        "SQuAD's JSON file to predict, such as dev-v1.1.json, or a table; scored if it"
        " has answers.",
        path=Path.FILE,
        needed_for=("do_predict", "eval_steps"),
        decides="nothing",
    )
    question_column: str = option(
        "question", "For a table: the column of the questions."
    )
    context_column: str = option(
        "context", "For a table: the column of the texts that the questions are about."
    )
    answer_column: str = option(
        "answer",
        "For a table: the column of the answers, spelled as in the text; in JSON lines"
        " also lists, or SQuAD's answers with text and answer_start. The columns id and"
        " answer_start are read if they exist. Without answer_start, the first place of"
        " the answer in the text counts.",
    )
    tfds_name: str | None = option(
        None,
        "Read a TensorFlow dataset instead of files: squad/v1.1, squad/v2.0, or"
        " another one with the same features.",
    )
    tfds_splits: tuple[str, ...] = tfds_splits(
        {"train": "to train on", "validation": "to answer"}
    )
    version_2_with_negative: bool = option(
        False, "Whether some questions have no answer (SQuAD 2.0).", decides="reading"
    )
    num_workers: int = option(
        0,
        "Number of processes that make the records; 0 for one per core. The result"
        " is the same.",
        least=0,
        decides="nothing",
    )
    # How a question and its paragraph become records.
    max_seq_length: int = options.with_default(FineTuningOptions, "max_seq_length", 384)
    doc_stride: int = option(
        128,
        "Long paragraphs are read in overlapping windows: tokens from the start of one"
        " window to the start of the next.",
        least=1,
        title=options.LENGTHS,
        decides="reading",
    )
    max_query_length: int = option(
        64,
        "Maximum length of a question in tokens; longer ones are truncated.",
        least=1,
        title=options.LENGTHS,
        decides="reading",
    )
    # Training first on other questions.
    first_train_file: str | None = option(
        None,
        "Questions to train on before --train_file, in OUTPUT_DIR/first_stage: a file"
        " in SQuAD's format, or TriviaQA's own wikipedia-train.json (Devlin et al."
        " 2018, section 4.2).",
        path=Path.FILE,
        only_with="do_train",
        title=options.TRAINING,
    )
    first_num_train_epochs: float = option(
        1.0, "Passes over --first_train_file.", least=0.0, title=options.TRAINING
    )
    evidence_dir: str | None = option(
        None,
        "For training on TriviaQA's own files: the folder with its documents, in"
        " wikipedia and web. Default: the folder evidence next to the file's folder.",
        path=Path.FOLDER,
        title=options.TRAINING,
        decides="nothing",
    )
    # How scores become answers.
    n_best_size: int = option(
        20,
        "Answers per question in nbest_predictions.json.",
        least=1,
        title=options.TASK,
    )
    max_answer_length: int = option(
        30, "Maximum length of an answer in tokens.", least=1, title=options.TASK
    )
    answer_text: str = option(
        "alignment",
        "How an answer's tokens become text. alignment: the original's search for the"
        " tokens in the words they come from; if it fails, the answer is the whole"
        " words. offsets: the characters of the paragraph that the tokens cover.",
        choices=("alignment", "offsets"),
        title=options.TASK,
    )
    verbose_logging: bool = option(
        False,
        "Log each answer whose alignment failed.",
        title=options.TASK,
        decides="nothing",
    )
    null_score_diff_threshold: float = option(
        0.0,
        'SQuAD 2.0: predict "no answer" if its score exceeds the best answer\'s by'
        " more than this. Default: the value that --find_null_threshold found for"
        " the model, else 0.",
        title=options.TASK,
    )
    find_null_threshold: bool = option(
        False,
        "Find the threshold with the best F1 on --predict_file, a development set, as"
        " the official evaluation does. Use it, and save it with the model in"
        " null_threshold.json for later predictions.",
        title=options.TASK,
        decides="nothing",
    )
    plots: bool = option(
        True,
        "For --find_null_threshold: draw precision, recall and score differences as"
        " PNG in --output_dir.",
        title=options.TASK,
        decides="nothing",
    )

    @property
    def num_global(self) -> int:
        """See `LongTextOptions`: the most tokens of [CLS], a question and [SEP]."""
        return self.max_query_length + 2

    def problems(self) -> Iterator[str]:
        """Yields options that exclude each other."""
        yield from super().problems()
        yield from self.need_one_of("do_train", "do_predict")
        yield from self.need_with("find_null_threshold", "version_2_with_negative")
        yield from self.need_with("find_null_threshold", "do_predict")
        yield from self.need_with("evidence_dir", "first_train_file", "train_file")
        # Now rather than after the first stage's training.
        for name in ("first_num_train_epochs", "num_train_epochs"):
            if self.first_train_file and not np.all(np.array(getattr(self, name)) > 0):
                yield f"`{name}` must be above 0 with `first_train_file`."
