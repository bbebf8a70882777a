"""TriviaQA's questions as SQuAD's articles, to train on.

    {"Domain": "Wikipedia", "VerifiedEval": false, "Version": 1.0, "Data": [
        {"QuestionId": "tc_33", "Question": "Which Lloyd Webber musical ...?",
         "Answer": {"Value": "Sunset Boulevard", "Aliases": ["Sunset Blvd", ...],
                    "NormalizedAliases": ["sunset blvd", ...], ...},
         "EntityPages": [{"Filename": "Andrew_Lloyd_Webber.txt", ...}],
         "SearchResults": [{"Filename": "35/35_995.txt", ...}]}]}

The file is in the archive's folder `qa`. Next to that is `evidence`, with the documents
of EntityPages in `wikipedia` and those of SearchResults in `web`. As in Devlin et al.
2018, section 4.2, a paragraph is a document's first 400 tokens, here words between
blanks, if an answer is in them, in any case of letters; the first one is trained on.
"""

import itertools
import os
import re
from typing import Any

from absl import logging

from bert_tf.base import files
from bert_tf.base.errors import InputError

NUM_WORDS = 400
_FOLDERS = {"EntityPages": "wikipedia", "SearchResults": "web"}


def articles_of(
    entries: list[Any], path: str, evidence_dir: str | None
) -> list[dict[str, Any]]:
    """Yields SQuAD's articles: one for each question and document with an answer."""
    folder = os.path.dirname(os.path.dirname(files.absolute(path)))
    folder = evidence_dir or os.path.join(folder, "evidence")
    if not files.is_folder(folder):
        raise InputError(
            f"{path} is TriviaQA's, but there is no folder of its documents, {folder}:"
            " give `evidence_dir`."
        )
    articles = []
    num_documents = num_missing = num_without = 0
    for number, entry in enumerate(entries, start=1):
        try:
            answer, question = entry["Answer"], str(entry["Question"])
            said = [answer["Value"], *answer["Aliases"], *answer["NormalizedAliases"]]
            pattern = _any_of(said)
            documents = {
                f"{entry['QuestionId']}--{document['Filename']}": os.path.join(
                    folder, kind, document["Filename"]
                )
                for key, kind in _FOLDERS.items()
                for document in entry.get(key, ())
            }
        except (LookupError, TypeError, AttributeError) as error:
            raise InputError(
                f"{path}: entry {number} of Data must have a QuestionId, a Question, an"
                " Answer with Value, Aliases and NormalizedAliases, and documents with"
                f" a Filename: {error!r}."
            ) from error
        num_documents += len(documents)
        for question_id, document_path in documents.items():
            if not files.exists(document_path):
                num_missing += 1
                continue
            text = files.read_bytes(document_path).decode(errors="replace")
            *_, last = (None, *itertools.islice(re.finditer(r"\S+", text), NUM_WORDS))
            context = text[: last.end()] if last else ""
            found = pattern.search(context)
            if found is None:
                num_without += 1
                continue
            span = {"text": found.group(), "answer_start": found.start()}
            qa = {"id": question_id, "question": question, "answers": [span]}
            paragraphs = [{"context": context, "qas": [qa]}]
            articles.append({"title": question_id, "paragraphs": paragraphs})
    logging.info(
        "%s: %d questions with %d documents; left out: %d whose file is not in %s, %d"
        " without an answer in their first %d words.",
        *(path, len(entries), num_documents, num_missing, folder, num_without),
        NUM_WORDS,
    )
    return articles


def _any_of(texts: list[str]) -> re.Pattern[str]:
    """Returns a pattern of the first, longest text that is there as whole words."""
    wanted = {r"\s+".join(map(re.escape, text.split())) for text in texts}
    longest_first = sorted(wanted - {""}, key=lambda text: (-len(text), text))
    one_of = "|".join(longest_first) or "(?!)"  # matches nothing
    return re.compile(rf"(?<!\w)(?:{one_of})(?!\w)", re.IGNORECASE)
