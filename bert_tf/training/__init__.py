"""The engine that trains, evaluates and predicts any `bert_tf.task.Task`."""
