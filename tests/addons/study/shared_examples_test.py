import json

import tensorflow as tf
from absl import logging

from bert_tf import run_classifier, run_embeddings, run_ner, run_squad, run_swag
from bert_tf.addons.methods.embeddings import EmbeddingTask
from bert_tf.addons.study import shared_examples
from bert_tf.tasks import finetuning
from bert_tf.tasks.classification import ClassificationTask
from bert_tf.tasks.squad.spans import SquadTask
from bert_tf.tasks.swag.multiple_choice import ChoiceTask
from bert_tf.tasks.tagging.words import TaggingTask
from tests.script_case import ScriptCase


class SharedExamplesTest(ScriptCase):
    tokens = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "ann", "lee", "and")

    def warnings(self, script, task, *arguments, **options):
        self.script = script
        options = self.flags("--do_train", *arguments, max_seq_length=16, **options)
        files = finetuning.files_of(options, options.output_dir)
        with self.assertLogs("absl", "INFO") as logs:
            logging.info("at least one line")
            shared_examples.warn(task(options, files, None))
        return [line for line in logs.output if "in the training set too" in line]

    def test_three_planted_rows_of_a_table(self):
        # The last one is there but for case and blanks.
        train = ["text,label", "ann,a", "lee,b", "and ann,a", "Ann  lee,b"]
        dev = ["text,label", "lee lee,b", "lee,a", "and ann,a", "ann lee,b", "and,a"]
        (line,) = self.warnings(
            *(run_classifier, ClassificationTask),
            *("--do_eval", "--text_a_column=text", "--label_column=label"),
            train_file=self.write("train.csv", "\n".join(train)),
            dev_file=self.write("dev.csv", "\n".join(dev)),
        )
        self.assertIn("3 of the 5 dev examples", line)
        self.assertIn("1 of them only up to case", line)
        for row, same in ((3, 3), (4, 4), (5, 5)):
            place = f"dev.csv:{row} ({self.path('train.csv')}:{same})"
            self.assertIn(place, line)

    def test_nothing_is_said_where_nothing_is_shared(self):
        found = self.warnings(
            *(run_classifier, ClassificationTask),
            *("--do_eval", "--text_a_column=text", "--label_column=label"),
            train_file=self.write("train.csv", "text,label\nann,a\nlee,b\n"),
            dev_file=self.write("dev.csv", "text,label\nann lee,a\n"),
        )
        self.assertEmpty(found)

    def test_sentences(self):
        (line,) = self.warnings(
            *(run_ner, TaggingTask, "--do_eval"),
            train_file=self.write("train.txt", "ann B-X\nlee O\n\nlee O\n"),
            dev_file=self.write("dev.txt", "and O\n\nANN O\nlee O\n"),
        )
        self.assertIn("1 of the 2 dev examples", line)
        self.assertIn(f"dev.txt:3 ({self.path('train.txt')}:1)", line)

    def test_questions(self):
        def questions(*ids):
            answer = {"text": "ann", "answer_start": 0}
            return {
                "data": [
                    {
                        "paragraphs": [
                            {
                                "context": "ann and lee",
                                "qas": [
                                    {"id": i, "question": q, "answers": [answer]}
                                    for i, q in ids
                                ],
                            }
                        ]
                    }
                ]
            }

        found = self.warnings(
            *(
                run_squad,
                SquadTask,
                "--do_predict",
                "--max_query_length=4",
                "--doc_stride=4",
            ),
            train_file=self.write("train.json", questions(("q1", "ann"))),
            predict_file=self.write(
                "dev.json", questions(("d1", "lee"), ("d2", "ann"))
            ),
        )
        self.assertLen(found, 1)
        self.assertIn("d2 (q1)", found[0])

    def test_choices(self):
        head = "sent1,sent2,ending0,ending1,label\n"
        (line,) = self.warnings(
            *(run_swag, ChoiceTask, "--do_eval"),
            train_file=self.write("train.csv", f"{head}ann,lee,and,lee,0\n"),
            dev_file=self.write(
                "dev.csv", f"{head}ann,lee,and,lee,1\nlee,,and,lee,0\n"
            ),
        )
        self.assertIn("1 of the 2 dev examples", line)

    def test_sentences_for_vectors(self):
        rows = [{"sentence1": "ann", "sentence2": "lee", "score": 1.0}]
        path = self.write("train.jsonl", "\n".join(map(json.dumps, rows)))
        (line,) = self.warnings(
            *(run_embeddings, EmbeddingTask, "--do_eval"),
            train_file=path,
            dev_file=path,
        )
        self.assertIn("1 of the 1 dev examples", line)


if __name__ == "__main__":
    tf.test.main()
