"""A vocabulary, learned from text."""

from absl import logging

from bert_tf.base import cli
from bert_tf.base.options import option, with_default
from bert_tf.base.shared_options import ModelOptions
from bert_tf.records.vocabulary_options import (
    WrittenVocabularyOptions,
    check_output_file,
    count_words,
    write,
)


class VocabularyOptions(WrittenVocabularyOptions, decides="numbers"):
    """The vocabulary to learn, and its text."""

    do_lower_case: bool = with_default(ModelOptions, "do_lower_case", True)
    vocab_size: int = option(
        30522,
        "Number of tokens, including special and unused ones; the file has exactly"
        " that many.",
        least=1,
    )
    num_unused: int = option(
        0,
        "Number of places reserved for your own tokens: [unused0] and so on. With 99"
        " places, [UNK] has id 100 as in the released vocabularies.",
        least=0,
    )
    min_frequency: int = option(
        2, "How often two pieces must occur next to each other to be merged.", least=1
    )
    character_coverage: float = option(
        0.9999,
        "Share of the text's characters that the vocabulary must cover. Words with"
        " rarer characters become [UNK]; 1 keeps all characters.",
        least=0.0,
        most=1.0,
    )


def run(options: VocabularyOptions) -> None:
    """Learns the vocabulary that the flags ask for, and writes it."""
    cli.show_log()
    from bert_tf.text import learning

    # Before looking for the text, which may prepare a whole dataset.
    first_tokens = learning.first_tokens(options.vocab_size, options.num_unused)
    beginning = "".join(f"{token}\n" for token in first_tokens).encode()
    check_output_file(
        options,
        lambda content: (
            content.startswith(beginning)
            and (options.fewer_tokens or content.count(b"\n") == options.vocab_size)
        ),
    )
    counts = count_words(options, options.do_lower_case, options.segmenter)
    vocabulary = learning.learn_from_counts(
        counts,
        vocab_size=options.vocab_size,
        fewer_tokens=options.fewer_tokens,
        num_unused=options.num_unused,
        min_frequency=options.min_frequency,
        character_coverage=options.character_coverage,
    )
    unknown = learning.count_unknown(counts, vocabulary)
    share = 100 * unknown / counts.num_occurrences
    logging.info("%d words (%.4f%%) become [UNK]", unknown, share)
    write(vocabulary, options)
