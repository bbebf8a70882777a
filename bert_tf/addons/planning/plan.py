"""Plans a training from a text and a time: measures, decides, runs."""

from collections.abc import Iterator, Sequence

from bert_tf.addons.planning.plan_commands import Command, Commands, PlanOptions
from bert_tf.addons.planning.plan_measurements import (
    TOKENS_PER_WEIGHT,
    Measurements,
    Pace,
    Text,
)
from bert_tf.base import cli, files
from bert_tf.base.errors import InputError
from bert_tf.base.parallel import available_cores
from bert_tf.base.pictures import table
from bert_tf.text.vocabulary import MANY_UNKNOWN
from bert_tf.training.launch import run_child

MOST_PASSES = 40
# General English has fewer tokens per word of a released vocabulary.
_MANY_TOKENS_PER_WORD = 1.5
_NO_SPACES_TOKENS_PER_WORD = 6.0  # in a language without word separators


def choose(paces: Sequence[Pace], seconds: float) -> Pace:
    """Returns the largest model that sees enough tokens in time, or the smallest."""
    enough = [
        pace
        for pace in paces
        if pace.tokens_per_second * seconds >= TOKENS_PER_WEIGHT * pace.num_weights
    ]
    return max(enough or paces[:1], key=lambda pace: pace.num_weights)


class Plan:
    """Measures, decides, and runs."""

    def __init__(self, options: PlanOptions) -> None:
        self.options = options
        self._commands = Commands(options)
        self._measured = Measurements(self._commands)
        # Set when the lines are made.
        self.commands: list[Command] = []
        self._size = ""

    def lines(self) -> Iterator[str]:
        """Returns the plan and its reasons."""
        options, text = self.options, self._measured.text()
        between = "" if self._commands.segmenter else " between spaces"
        yield (
            f"Text: {text.num_bytes / 1e6:,.1f} MB, about {text.words:,.0f} words"
            f"{between} and {text.tokens:,.0f} tokens"
            f" ({text.tokens / max(text.words, 1.0):.2f} per word)."
        )
        paces, failure = self._measured.paces(text)
        before = text.seconds
        seconds = 3600.0 * options.hours - before
        if seconds <= 0.0:
            raise InputError(
                f"`hours={options.hours:g}`: writing the records alone takes"
                f" {before / 60.0:.1f} minutes."
            )
        pace = choose(paces, seconds)
        total = text.tokens
        yield f"Machine: {available_cores()} cores."
        rows = [
            [
                one.size,
                f"{one.num_weights:,}",
                f"{one.tokens_per_second:,.0f}",
                f"{one.memory_bytes / 1e9:.1f}",
                f"{one.tokens_per_second * seconds / one.num_weights:,.1f}",
                f"{one.tokens_per_second * seconds / total:,.1f}",
                "<" if one is pace else "",
            ]
            for one in paces
        ]
        header = [
            "model",
            "weights",
            "tokens/s",
            "GB of RAM",
            "tokens per weight",
            "passes",
            "",
        ]
        yield table(header, rows).rstrip()
        if failure:
            yield f"Left out: {failure}"
        yield from self._warnings(pace, seconds, text)
        if (unigrams := text.unigram_bits_per_byte) is not None:
            seen = pace.tokens_per_second * seconds
            yield from self._expected(pace, seen, unigrams)
        else:
            yield from self._expected_of_checkpoint()
        yield (
            f"Time: {before / 60.0:,.1f} minutes for the records,"
            f" {seconds / 3600.0:,.2f} hours of training. Disk:"
            f" {text.record_bytes / 1e9:,.2f} GB of records."
        )
        yield ""
        self._size = pace.size
        self.commands = self._commands.planned(
            size=pace.size,
            learning_rate=pace.learning_rate,
            hours=seconds / 3600.0,
            num_bytes=text.num_bytes,
        )
        yield "\n\n".join(map(str, self.commands))

    def _warnings(self, pace: Pace, seconds: float, text: Text) -> Iterator[str]:
        per_word, total = text.tokens / max(text.words, 1.0), text.tokens
        is_cut = (
            not self._commands.makes_vocabulary and per_word > _MANY_TOKENS_PER_WORD
        )
        if text.has_phrases and self._commands.segmenter is None:
            yield "`segmenter=icu` separates words that have no spaces between them."
        elif is_cut and per_word < _NO_SPACES_TOKENS_PER_WORD:
            yield (
                f"The vocabulary cuts a word into {per_word:.2f} tokens."
                " `num_new_tokens=1000` adds words of the text to it."
            )
        if text.unknown_share > MANY_UNKNOWN:
            yield (
                f"{text.unknown_share:.1%} of the tokens are [UNK]: characters that the"
                " vocabulary does not have, which no score counts. Start from another"
                " checkpoint, or from scratch."
            )
        seen = pace.tokens_per_second * seconds
        enough = TOKENS_PER_WEIGHT * pace.num_weights
        if self.options.init_checkpoint is None and seen < enough:
            yield (
                "The hours are too few for a model from scratch:"
                f" {enough / pace.tokens_per_second / 3600.0:,.1f} would show it"
                f" {TOKENS_PER_WEIGHT} tokens per weight. Start from a checkpoint"
                " (`init_checkpoint`), or give more hours."
            )
        if seen > MOST_PASSES * total:
            hours = MOST_PASSES * total / pace.tokens_per_second / 3600.0
            yield (
                f"The text is too short for the hours: it is seen {seen / total:,.0f}"
                f" times. {hours:,.3g} hours are {MOST_PASSES} passes."
            )

    def _expected(self, pace: Pace, tokens: float, unigrams: float) -> Iterator[str]:
        """Yields the score of a reference run of the size after as many tokens."""
        from bert_tf.addons.planning.reference_curves import references

        if (reference := references().get(pace.size)) is None:
            return
        reference = reference.of_text({"unigram_bits_per_byte": unigrams})
        at = min(max(tokens, reference.tokens[0]), reference.tokens[-1])
        bits = reference.bits_at(at)
        more = "" if at == tokens else " or fewer" if at < tokens else " or more"
        yield (
            f"To expect: {bits:.2f}{more} bits per byte of held-out text, where the"
            f" unigrams have {unigrams:.2f}: the same share of these as a reference"
            f" run had after {at / 1e6:.1f} M tokens ({reference.made})."
        )

    def _expected_of_checkpoint(self) -> Iterator[str]:
        """Yields the checkpoint's present score; no reference run began with it."""
        from bert_tf.addons.planning.bits_per_byte import BITS_PER_BYTE, UNIGRAM_BITS

        of = "held-out text" if self.options.eval_file else "text"
        scores = self._measured.scores_of_checkpoint()
        if scores is None:
            yield "The checkpoint has no masked LM: the training begins with a new one."
        elif (bits := scores.get(BITS_PER_BYTE)) is not None:
            yield (
                f"To expect: fewer bits per byte of the {of} than the checkpoint has"
                f" by now, {bits:.2f}, and than the unigrams,"
                f" {scores[UNIGRAM_BITS]:.2f}."
            )

    def go(self) -> None:
        """Runs the commands that are not done; InputError where one fails."""
        self._measured.keep_size(self._size)
        for number, command in enumerate(self.commands):
            if not number:  # the others resume by themselves
                if self._commands.makes_vocabulary and files.exists(command.result):
                    continue
                self._measured.keep_text()
            print(f"\n{command}\n", flush=True)
            if code := run_child(command.in_python, shown=True).code:
                again = "The same command resumes the plan."
                if code == cli.EXIT_INPUT_ERROR:
                    again = (
                        "When that is mended, the same command resumes the plan;"
                        " another `output_dir` begins a new one."
                    )
                raise InputError(f"{command.module} ended with {code}. {again}")


def run(options: PlanOptions) -> None:
    """Prints the plan, and runs it if asked to."""
    cli.show_log()
    plan = Plan(options)
    for line in plan.lines():
        print(line, flush=True)
    if options.go:
        plan.go()
    else:
        print("\nThe same command with --go runs them.")
