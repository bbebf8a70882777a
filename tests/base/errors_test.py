import tensorflow as tf

from bert_tf.base.errors import cause_of

# As TensorFlow 2.21 words them.
IN_A_GRAPH = """Graph execution error:

Detected at node while/IteratorGetNext defined at (most recent call last):
  File "/x.py", line 14, in <module>

  File "/x.py", line 12, in f

corrupted record at 244
\t [[{{node while/IteratorGetNext}}]] [Op:__inference_f_85]"""
OF_TWO = """Graph execution error:

2 root error(s) found.
  (0) RESOURCE_EXHAUSTED:  OOM when allocating tensor with shape[9]
\t [[{{node zeros}}]]
Hint: If you want to see a list of allocated tensors when OOM happens, ...
\t [[Shape/_2]]
  (1) RESOURCE_EXHAUSTED:  OOM when allocating tensor with shape[9]
\t [[{{node zeros}}]]
0 successful operations. [Op:__inference_g_95]"""
EAGER = (
    "{{function_node __wrapped__Fill_device_/job:localhost/replica:0/task:0}} OOM when"
    " allocating tensor with shape[9] [Op:Fill] name: "
)

WORKER_IS_GONE = """Graph execution error:

Detected at node while/CollectiveReduceV2 defined at (most recent call last):
  File "/x.py", line 14, in <module>

Collective ops is aborted by: Error reported from /job:worker/task:2: The following \
tasks are unhealthy (stopped sending heartbeats):
/job:worker/replica:0/task:1
The tasks have crashed. Check the task logs for an earlier error.
The error could be from a previous operation. Restart your program to reset.
\t [[{{node while/CollectiveReduceV2}}]] [Op:__inference_steps_5254]"""


class CauseOfTest(tf.test.TestCase):
    def test_tensorflows_messages(self):
        for message, cause in (
            (IN_A_GRAPH, "corrupted record at 244"),
            (
                OF_TWO,
                "(0) RESOURCE_EXHAUSTED:  OOM when allocating tensor with shape[9]",
            ),
            (EAGER, "OOM when allocating tensor with shape[9]"),
            ("NOT_FOUND: a file\nAnd more.", "NOT_FOUND: a file"),
            ("Graph execution error:\n\nOut of memory.", "Out of memory."),
            ("one line", "one line"),
            ("a " + EAGER, "a OOM when allocating tensor with shape[9]"),
            (
                "Error executing an HTTP request\n\t when reading metadata of gs://a/b",
                "Error executing an HTTP request when reading metadata of gs://a/b",
            ),
            ("", ""),
        ):
            self.assertEqual(cause_of(message), cause)

    def test_a_worker_that_is_gone_is_named(self):
        self.assertStartsWith(cause_of(WORKER_IS_GONE), "No answer from worker 1: ")
        jax = "UNKNOWN: Gloo AllGather failed: [pair.cc:547] Connection closed by peer"
        self.assertStartsWith(cause_of(jax), "No answer from another worker: ")
