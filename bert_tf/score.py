r"""Scores sentences, and pairs of sentences, with a pre-trained model.

    python -m bert_tf.score --checkpoint=/tmp/pretraining_output \
        "The cat sat on the mat." "The cat sat on the ||| mat."

It prints the pseudo-perplexity of a sentence (Salazar et al. 2020: each token is masked
in turn), or, for two texts separated by " ||| ", the probability that the second one
follows the first (the next sentence head). --input_file=FILE has one per line.
"""

import dataclasses
import json
import sys
from collections.abc import Iterator
from typing import Any

from bert_tf import cli, files
from bert_tf.errors import InputError
from bert_tf.options import Path, SourceOptions, option

SEPARATOR = " ||| "


@dataclasses.dataclass(frozen=True, kw_only=True)
class ScoreOptions(SourceOptions):
    """The model, and the sentences to score."""

    input_file: str | None = option(
        None,
        "Sentences or pairs, one per line; empty lines are skipped.",
        path=Path.FILE,
    )
    batch_size: int = option(
        32, "Sequences per batch; a sentence needs one for each of its tokens.", least=1
    )
    tokens: bool = option(False, "Print each token's log probability too.")
    json: bool = option(False, "Print one JSON object per line.")


def _texts(options: ScoreOptions) -> list[tuple[str, str]]:
    """What to score, each with its place for messages: arguments, then lines."""
    texts = [(argument, "") for argument in options.positional]
    path = options.input_file
    if path:
        content = files.read_text(path, "file of sentences").removeprefix("\ufeff")
        texts += [
            (line.rstrip("\r\n"), f"{path}:{number}: ")
            for number, line in enumerate(files.lines(content), start=1)
            if line.strip()
        ]
    if not texts:
        raise InputError(
            'Give a sentence, or --input_file: score --checkpoint=DIR "A sentence."'
        )
    return texts


def _lines(options: ScoreOptions, texts: list[tuple[str, str]]) -> Iterator[str]:
    from bert_tf.conversion.export import source_of
    from bert_tf.conversion.loading import load_pretrainer, load_tokenizer
    from bert_tf.study import SentenceScorer, corpus_pseudo_perplexity

    source = source_of(options)
    scorer = SentenceScorer(
        load_pretrainer(source), load_tokenizer(source), batch_size=options.batch_size
    )
    split = [text.split(SEPARATOR, 1) for text, _ in texts]
    for parts, (_, place) in zip(split, texts, strict=True):
        try:
            scorer.check(*parts)
        except InputError as error:
            raise InputError(f"{place}{error}") from error
    of_pairs = scorer.pairs((one[0], one[1]) for one in split if len(one) > 1)
    of_sentences = scorer.sentences(one[0] for one in split if len(one) == 1)
    scores = []
    for (text, _), parts in zip(texts, split, strict=True):
        values: dict[str, Any] = {"text": text}
        if len(parts) > 1:
            values["next_sentence_probability"] = probability = next(of_pairs)
            shown = f"{probability:12.2%}  {text}"
        else:
            score = next(of_sentences)
            scores.append(score)
            values["pseudo_perplexity"] = score.pseudo_perplexity
            values["pseudo_log_likelihood"] = score.pseudo_log_likelihood
            values["num_tokens"] = len(score.tokens)
            shown = f"{score.pseudo_perplexity:12.3f}  {text}"
            if options.tokens:
                values |= score._asdict()
                for token, value in zip(*score, strict=True):
                    shown += f"\n{'':12}  {value:9.3f}  {token}"
        yield json.dumps(values, ensure_ascii=False) if options.json else shown
    if len(scores) > 1:
        count, together = len(scores), corpus_pseudo_perplexity(scores)
        values = {"num_sentences": count, "pseudo_perplexity": together}
        shown = f"{together:12.3f}  all {count} sentences together"
        yield json.dumps(values) if options.json else shown


def run(options: ScoreOptions) -> None:
    """Prints a line for each text, in their order."""
    texts = _texts(options)
    cli.import_tensorflow()
    for line in _lines(options, texts):
        print(line)
        sys.stdout.flush()


def main() -> None:
    """The command line."""
    cli.main(run, arguments="texts")


if __name__ == "__main__":
    main()
