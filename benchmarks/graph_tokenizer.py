r"""The tokenizer in a graph: lines that differ from Python's, and megabytes a second.

    python benchmarks/graph_tokenizer.py --data_dir=DATA

DATA holds wikipedia_en/*.xz (wikiextractor's output), udhr/*.txt (one language a file)
and the released vocabularies as vocab/NAME/vocab.txt. "fuzz" is every character of
Unicode in a random order, and mixtures of scripts.

The reference is `WordPieceTokenizer`; a line differs where its ids do, or, for "with
offsets", the characters that a token covers. The peers are tensorflow-text's
BertTokenizer and FastBertTokenizer, which KerasHub and most SavedModels use. All take
1,024 lines at a time on one thread, results left as tensors; speed is in megabytes of
UTF-8 a second of processor time, the best of `--repetitions`, in turn.
"""

import os
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path[:0] = [ROOT, os.path.join(ROOT, "benchmarks")]
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tensorflow as tf  # noqa: E402
import tensorflow_text  # noqa: E402
from tokenization import cases, megabytes, options_of  # noqa: E402

from bert_tf.addons.serving.graph_tokenizer import GraphTokenizer  # noqa: E402
from bert_tf.text.vocabulary import Vocabulary  # noqa: E402
from bert_tf.text.wordpiece import WordPieceTokenizer  # noqa: E402

BATCH = 1024


class Contender(NamedTuple):
    """A way of turning a batch of texts into what `lines` makes comparable."""

    name: str
    run: Callable[[tf.Tensor], Any]
    lines: Callable[[Any], list]
    reference: str


def ids_of(result: tf.RaggedTensor) -> list:
    return result.to_list()


def merged_ids_of(result: tf.RaggedTensor) -> list:
    return result.merge_dims(-2, -1).to_list()


def offsets_of(encoding: Any) -> list:
    parts = (encoding.ids, encoding.starts, encoding.ends)
    return [
        list(zip(*line, strict=True))
        for line in zip(*(part.to_list() for part in parts), strict=True)
    ]


def contenders_of(vocabulary: Vocabulary, path: str, lower: bool) -> list[Contender]:
    graph = GraphTokenizer(vocabulary, do_lower_case=lower)
    bert = tensorflow_text.BertTokenizer(
        path, lower_case=lower, token_out_type=tf.int64
    )
    # Traced, as in a SavedModel.
    traced = tf.function(
        bert.tokenize, input_signature=[tf.TensorSpec([None], tf.string)]
    )
    found = [
        # Not `graph.encode` itself, which does not keep its object alive.
        Contender("bert_tf", lambda texts: graph.encode(texts), ids_of, "ids"),
        Contender(
            "bert_tf, with offsets",
            lambda texts: graph.encode_with_offsets(texts),
            offsets_of,
            "offsets",
        ),
        Contender("BertTokenizer", traced, merged_ids_of, "ids"),
    ]
    try:
        fast = tensorflow_text.FastBertTokenizer(
            list(vocabulary.tokens),
            token_out_type=tf.int32,
            lower_case_nfd_strip_accents=lower,
        )
    except (RuntimeError, ValueError) as error:
        print(f"    FastBertTokenizer refuses the vocabulary: {error}")
    else:
        found.append(
            Contender("FastBertTokenizer", tf.function(fast.tokenize), ids_of, "ids")
        )
    return found


def compare(
    contenders: list[Contender],
    tokenizer: WordPieceTokenizer,
    texts: list[str],
    repetitions: int,
) -> None:
    """Prints one line for each contender."""
    references: dict[str, list] = {"ids": [], "offsets": []}
    for text in texts:
        encoding = tokenizer.encode_with_offsets(text)
        references["ids"].append(encoding.ids)
        references["offsets"].append(
            [
                (token_id, start, end)
                for token_id, (start, end) in zip(
                    encoding.ids, encoding.offsets, strict=True
                )
            ]
        )
    batches = [
        tf.constant(texts[begin : begin + BATCH])
        for begin in range(0, len(texts), BATCH)
    ]
    best = dict.fromkeys(contenders, float("inf"))
    for contender in contenders:
        contender.run(batches[0])
    for _ in range(repetitions):
        for contender in contenders:
            start = time.process_time()
            for batch in batches:
                contender.run(batch)
            best[contender] = min(best[contender], time.process_time() - start)
    for contender in contenders:
        lines = [
            line for batch in batches for line in contender.lines(contender.run(batch))
        ]
        expected = references[contender.reference]
        different = sum(a != b for a, b in zip(lines, expected, strict=True))
        speed = megabytes(texts) / best[contender]
        print(f"    {contender.name:24}{speed:8.2f} MB/s{different:10,} lines differ")


def main() -> None:
    options = options_of(__doc__, size=4.0, repetitions=3)
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    for path, uncased, lines in cases(options):
        vocabulary = Vocabulary.from_file(path)
        tokenizer = WordPieceTokenizer(vocabulary, do_lower_case=uncased)
        contenders = contenders_of(vocabulary, path, uncased)
        compare(contenders, tokenizer, lines, options.repetitions)


if __name__ == "__main__":
    main()
