"""The engine that trains, evaluates and predicts any `bert_tf.training.task.Task`."""
