"""A vocabulary of a few letters, for tests that count tokens by hand."""

from bert_tf.tasks.squad.reading import GoldAnswer, Question
from bert_tf.text.vocabulary import Vocabulary
from bert_tf.text.wordpiece import WordPieceTokenizer

TOKENS = [
    *("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"),
    *("a", "b", "c", "d", "e", "##d", "##e"),
    *("(", ")", "-", ".", "中", "1895", "1943"),
]


def tokenizer():
    return WordPieceTokenizer(Vocabulary(TOKENS))


def ids(text):
    """The ids of tokens, written with blanks between."""
    return [TOKENS.index(token) for token in text.split()]


def question(context, text="e", answer=None, number=0, **fields):
    """A question, with an answer that begins where the text first stands."""
    answers = () if answer is None else (GoldAnswer(answer, context.index(answer)),)
    return Question(
        question_id=f"q{number}", text=text, context=context, answers=answers, **fields
    )
