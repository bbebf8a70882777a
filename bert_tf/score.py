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
from typing import TYPE_CHECKING, NamedTuple

from bert_tf import cli, files
from bert_tf.errors import InputError
from bert_tf.options import Path, SourceOptions, option

if TYPE_CHECKING:
    from bert_tf.study import SentenceScore, SentenceScorer

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
        32,
        "Sequences per batch; a sentence needs one for each of its tokens.",
        least=1,
    )
    tokens: bool = option(False, "Print each token's log probability too.")
    json: bool = option(False, "Print one JSON object per line.")


class Text(NamedTuple):
    """A text to score.

    Attributes:
        text: a sentence, or two with `SEPARATOR` between.
        place: its place, "FILE:LINE: "; "" for an argument.
    """

    text: str
    place: str = ""

    @property
    def parts(self) -> list[str]:
        """The sentence, or the two of a pair."""
        return self.text.split(SEPARATOR, 1)


def _texts(options: ScoreOptions) -> list[Text]:
    """What to score: the arguments, then the file's lines."""
    texts = [Text(argument) for argument in options.positional]
    path = options.input_file
    if path:
        content = files.read_text(path, "file of sentences").removeprefix("\ufeff")
        texts += [
            Text(line.rstrip("\r\n"), f"{path}:{number}: ")
            for number, line in enumerate(files.lines(content), start=1)
            if line.strip()
        ]
    if not texts:
        raise InputError(
            'Give a sentence, or --input_file: score --checkpoint=DIR "A sentence."'
        )
    return texts


def show_sentence(text: str, score: "SentenceScore", *, tokens: bool) -> str:
    """A sentence's score as readable text."""
    lines = [f"{score.pseudo_perplexity:12.3f}  {text}"]
    if tokens:
        lines += [
            f"{'':12}  {value:9.3f}  {token}"
            for token, value in zip(score.tokens, score.log_probabilities, strict=True)
        ]
    return "\n".join(lines)


def _check(scorer: "SentenceScorer", texts: list[Text]) -> None:
    """Raises InputError, with its place, for the first text that cannot be scored."""
    for text in texts:
        try:
            scorer.check(*text.parts)
        except InputError as error:
            raise InputError(f"{text.place}{error}") from error


def _lines(options: ScoreOptions, texts: list[Text]) -> Iterator[str]:
    from bert_tf.conversion.export import source_of
    from bert_tf.conversion.loading import load_pretrainer, load_tokenizer
    from bert_tf.study import SentenceScorer, corpus_pseudo_perplexity

    source = source_of(options)
    scorer = SentenceScorer(
        load_pretrainer(source),
        load_tokenizer(source),
        batch_size=options.batch_size,
    )
    _check(scorer, texts)
    split = [text.parts for text in texts]
    of_pairs = scorer.pairs((one[0], one[1]) for one in split if len(one) > 1)
    of_sentences = scorer.sentences(one[0] for one in split if len(one) == 1)
    scores = []
    for (text, _), parts in zip(texts, split, strict=True):
        if len(parts) > 1:
            probability = next(of_pairs)
            values = {"text": text, "next_sentence_probability": probability}
            shown = f"{probability:12.2%}  {text}"
        else:
            score = next(of_sentences)
            scores.append(score)
            values = {
                "text": text,
                "pseudo_perplexity": score.pseudo_perplexity,
                "pseudo_log_likelihood": score.pseudo_log_likelihood,
                "num_tokens": len(score.tokens),
            }
            if options.tokens:
                values["tokens"] = score.tokens
                values["log_probabilities"] = score.log_probabilities
            shown = show_sentence(text, score, tokens=options.tokens)
        yield json.dumps(values, ensure_ascii=False) if options.json else shown
    if len(scores) > 1:
        together = corpus_pseudo_perplexity(scores)
        if options.json:
            yield json.dumps(
                {"num_sentences": len(scores), "pseudo_perplexity": together}
            )
        else:
            yield f"{together:12.3f}  all {len(scores)} sentences together"


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
