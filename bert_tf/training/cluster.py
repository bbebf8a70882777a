"""Finds and connects the processes of `--distribution=multi_worker`.

The environment of each process names all of them. The first of these sources counts:

    TF_CONFIG      {"cluster": {"worker": ["host0:2222", "host1:2222"]},
                   "task": {"type": "worker", "index": 0}}, as in TensorFlow
    CLUSTER_SPEC   Vertex AI's, whose pools of workers have other names
    Slurm          SLURM_STEP_NODELIST and others, as set by srun
    Kubernetes     JOB_COMPLETION_INDEX, as set by an indexed job, and WORKER_HOSTS, the
                   pods' names in their headless service: "bert-[0-3].bert"

JAX automatically detects the processes of Slurm, Open MPI, Kubernetes' own interface
and TPU slices; for JAX, only the other sources are read.
"""

import contextlib
import json
import os
import re
import socket
import time
import urllib.parse
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import tensorflow as tf
from absl import logging
from tensorflow.python.distribute.cluster_resolver import slurm_cluster_resolver

from bert_tf.base.errors import InputError, first_line

# Time limit for the other workers to answer.
SECONDS_TO_ANSWER = 600

TF_CONFIG_EXAMPLE = (
    'TF_CONFIG, such as {"cluster": {"worker": ["host0:2222", "host1:2222"]},'
    ' "task": {"type": "worker", "index": 0}}'
)
_PORT = 2222  # for a pod, which shares its ports with no other
# Vertex AI's names of the pools that train; the others are servers and evaluators.
_POOLS = {"workerpool0": "chief", "workerpool1": "worker"}


class Cluster(NamedTuple):
    """The processes that train together, and the place of this one."""

    found: str  # the source of the names
    places: Mapping[str, tuple[str, int]]  # "worker 0" -> (host, port), in order
    own: str

    def resolver(self) -> tf.distribute.cluster_resolver.ClusterResolver:
        """Returns the cluster as TensorFlow's resolver."""
        jobs: dict[str, list[str]] = {}
        for name, place in self.places.items():
            jobs.setdefault(name.split()[0], []).append("{}:{}".format(*place))
        job, index = self.own.split()
        return tf.distribute.cluster_resolver.SimpleClusterResolver(
            tf.train.ClusterSpec(jobs),
            task_type=job,
            task_id=int(index),
            rpc_layer="grpc",
        )


def find(sources: Sequence[str]) -> Cluster | None:
    """Returns the cluster that the environment names, by the first of these sources.

    Raises InputError if it does not name this process.
    """
    for source in sources:
        variable, read = _SOURCES[source]
        if os.environ.get(variable):
            try:
                jobs, job, index = read(os.environ[variable])
                places = {
                    f"{other} {number}": host_and_port(address)
                    for other in ("chief", "worker")
                    for number, address in enumerate(jobs.get(other, ()))
                }
                cluster = Cluster(source, places, f"{job} {int(index)}")
                if cluster.own not in places:
                    raise ValueError(
                        f"{cluster.own} is not one of {', '.join(places)}."
                    )
            # JSON's errors are ValueErrors.
            except (IndexError, KeyError, TypeError, ValueError) as error:
                lacks = "there is no " if isinstance(error, KeyError) else ""
                reason = lacks + first_line(error).rstrip(".")
                raise InputError(
                    f"`distribution=multi_worker`: {variable}={os.environ[variable]}"
                    f" does not name this process: {reason}. Give {TF_CONFIG_EXAMPLE}."
                ) from error
            logging.info(
                "%s: this is %s of %d, at %s:%d.",
                *(source, cluster.own, len(places), *places[cluster.own]),
            )
            return cluster
    return None


_Found = tuple[Mapping[str, Sequence[str]], str, int]  # job -> addresses; job, index


def _of_tf_config(text: str) -> _Found:
    config = json.loads(text)
    job, index = config["task"]["type"], config["task"]["index"]
    jobs = tf.train.ClusterSpec(config["cluster"]).as_dict()
    _ = jobs["worker"]
    return jobs, job, index


def _of_cluster_spec(text: str) -> _Found:
    config = json.loads(text)
    pools = tf.train.ClusterSpec(config["cluster"]).as_dict()
    jobs = {job: pools[pool] for pool, job in _POOLS.items() if pool in pools}
    pool, index = config["task"]["type"], config["task"]["index"]
    return jobs, _POOLS.get(pool, pool), index


def _of_slurm(nodes: str) -> _Found:
    # Not SlurmClusterResolver, which sorts the nodes: node10 comes before node9.
    counts = slurm_cluster_resolver.expand_tasks_per_node(
        os.environ["SLURM_STEP_TASKS_PER_NODE"]
    )
    hosts = zip(slurm_cluster_resolver.expand_hostlist(nodes), counts, strict=True)
    # The job's own ports, above those that Linux assigns to others: 16 per node.
    port = 2**16 - 2**12 + int(os.environ["SLURM_JOB_ID"]) % 2**8 * 16
    tasks = [(host, number) for host, count in hosts for number in range(count)]
    index = int(os.environ["SLURM_PROCID"])
    if tasks[index][1] != int(os.environ["SLURM_LOCALID"]):
        raise ValueError("tasks are not numbered node by node: srun -m block does so.")
    places = [f"{host}:{port + number}" for host, number in tasks]
    return {"worker": places}, "worker", index


def _of_kubernetes(hosts: str) -> _Found:
    names: list[str] = []
    for part in hosts.split(","):
        if found := re.fullmatch(r"(.*)\[(\d+)-(\d+)\](.*)", part.strip()):
            before, first, last, after = found.groups()
            numbers = range(int(first), int(last) + 1)
            names += [f"{before}{number}{after}" for number in numbers]
        else:
            names.append(part.strip())
    places = [name if ":" in name else f"{name}:{_PORT}" for name in names]
    return {"worker": places}, "worker", int(os.environ["JOB_COMPLETION_INDEX"])


_SOURCES: Mapping[str, tuple[str, Callable[[str], _Found]]] = {
    "TF_CONFIG": ("TF_CONFIG", _of_tf_config),
    "CLUSTER_SPEC": ("CLUSTER_SPEC", _of_cluster_spec),
    "Slurm": ("SLURM_STEP_NODELIST", _of_slurm),
    "Kubernetes": ("WORKER_HOSTS", _of_kubernetes),
}
EVERY_SOURCE = tuple(_SOURCES)
# Sources that JAX does not detect.
NOT_OF_JAX = tuple(name for name in _SOURCES if name != "Slurm")


def host_and_port(address: str, default: int | None = None) -> tuple[str, int]:
    """Splits an address, "host0:2222"; `default` is the port if it has none."""
    parts = urllib.parse.urlsplit(f"//{address}")
    port = parts.port or default
    if not parts.hostname or not port:
        raise ValueError(f"{address!r} is not HOST:PORT.")
    return parts.hostname, port


def meet(cluster: Cluster) -> None:
    """Waits until every other worker has responded once.

    TensorFlow would wait an hour, silently and ignoring signals. Until its server
    takes over the port, each worker listens at its own address.
    """
    places, own = cluster.places, cluster.own
    missing = {name: place for name, place in places.items() if name != own}
    try:
        both = socket.has_dualstack_ipv6()
        listener = socket.create_server(
            ("", places[own][1]),
            family=socket.AF_INET6 if both else socket.AF_INET,
            dualstack_ipv6=both,
        )
    except OSError as error:
        raise InputError(
            f"`distribution=multi_worker`: {own} cannot listen at port"
            f" {places[own][1]}: {error.strerror}. Does another process have its index"
            f" ({cluster.found})?"
        ) from error
    logging.info(
        "%s waits for %s, for %d seconds at most.",
        own,
        ", ".join(missing),
        SECONDS_TO_ANSWER,
    )
    end = time.monotonic() + SECONDS_TO_ANSWER
    # No worker may leave its address before the others have found it there.
    unheard = len(missing)
    listener.setblocking(False)
    with listener:
        while missing or unheard > 0:
            for name, place in list(missing.items()):
                with contextlib.suppress(OSError):
                    socket.create_connection(place, timeout=1.0).close()
                    del missing[name]
            with contextlib.suppress(BlockingIOError):
                while True:
                    listener.accept()[0].close()
                    unheard -= 1
            if (missing or unheard > 0) and time.monotonic() > end:
                described = ", ".join(
                    f"{name} ({host}:{port})" for name, (host, port) in missing.items()
                )
                raise InputError(
                    "`distribution=multi_worker`: no answer from"
                    f" {described or 'all others'} in"
                    f" {SECONDS_TO_ANSWER} seconds. Start the same command there, with"
                    f" its own index ({cluster.found}); the ports must be open."
                )
            if missing or unheard > 0:
                time.sleep(0.1)
