import tensorflow as tf

from bert_tf.task import Task
from bert_tf.training.config import Phase
from bert_tf.training.streams import Streams

# The stream that each batch of two records comes from.
PLAN = (0, 0, 1, 0, 2, 2, 2, 0, 1, 1)
TASK = Task(
    name="toy",
    build_model=lambda: None,
    objective=None,
    training_flops=lambda shapes: 100.0 * shapes["numbers"][1],
)


class StreamsTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.opened = set()
        self.phase = Phase(
            end_step=len(PLAN),
            batch_size=2,
            streams=[self.stream(number) for number in range(3)],
            stream_of=lambda position: PLAN[min(position // 2, len(PLAN) - 1)],
        )

    def stream(self, number):
        """Batches of length `number` + 3, full of their own number."""

        def data(position, shard):
            del shard
            self.opened.add((number, position))
            left = [
                batch
                for batch, stream in enumerate(PLAN)
                if stream == number and batch >= position // 2
            ]
            return tf.data.Dataset.from_tensor_slices(left).map(
                lambda batch: {"numbers": tf.fill([2, number + 3], batch)}
            )

        return data

    def read(self, start, at_most):
        """(length, batches) of each call, from batch `start` on, as the loop reads."""
        streams = Streams(self.phase, 2 * start, TASK, tf.distribute.get_strategy())
        calls = []
        while start < len(PLAN):
            stream, count = streams.next(2 * start, min(at_most, len(PLAN) - start))
            stream.calls += 1
            batches = [next(stream.iterator)["numbers"] for _ in range(count)]
            calls.append((batches[0].shape[1], [int(batch[0, 0]) for batch in batches]))
            self.assertEqual(stream.flops_per_step, 100.0 * batches[0].shape[1])
            start += count
        return calls

    def test_as_many_of_one_stream_as_come_together(self):
        self.assertEqual(
            self.read(0, at_most=100),
            [(3, [0, 1]), (4, [2]), (3, [3]), (5, [4, 5, 6]), (3, [7]), (4, [8, 9])],
        )

    def test_no_more_than_are_asked_for(self):
        self.assertEqual(
            [batches for _, batches in self.read(0, at_most=2)],
            [[0, 1], [2], [3], [4, 5], [6], [7], [8, 9]],
        )

    def test_a_stream_is_opened_once_and_where_the_run_began(self):
        self.assertEqual(
            self.read(5, at_most=100), [(5, [5, 6]), (3, [7]), (4, [8, 9])]
        )
        self.assertEqual(self.opened, {(2, 10), (0, 10), (1, 10)})

    def test_only_what_is_read_is_opened(self):
        self.read(8, at_most=100)
        self.assertEqual(self.opened, {(1, 16)})

    def test_each_stream_counts_its_own_calls(self):
        streams = Streams(self.phase, 0, TASK, tf.distribute.get_strategy())
        first, _ = streams.next(0, 1)
        first.calls += 1
        self.assertEqual(streams.next(4, 1)[0].calls, 0)
        self.assertIs(streams.next(6, 1)[0], first)


if __name__ == "__main__":
    tf.test.main()
