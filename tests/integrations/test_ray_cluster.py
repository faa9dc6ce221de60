"""On two Ray nodes of this machine, one killed in the middle: nothing is lost."""

import threading
import time
from pathlib import Path

import pytest
from bo_robust.study import Study, WorkerLost
from tests.study import objectives

ray = pytest.importorskip("ray")

from ray.cluster_utils import Cluster  # noqa: E402

from bo_robust.integrations.ray import RayExecutor  # noqa: E402
from tests.integrations.test_ray import FIXED, Counting  # noqa: E402

pytestmark = pytest.mark.slow
NODE = {"num_cpus": 1, "object_store_memory": 100 * 2**20, "node_ip_address": "127.0.0.1"}

SOON = {"health_check_initial_delay_ms": 1000, "health_check_period_ms": 500}  # a dead node is noticed in seconds


@pytest.fixture(scope="module")
def cluster():
    """The first node, where the driver is."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        made = Cluster(initialize_head=True, head_node_args=NODE | {"include_dashboard": False, "_system_config": SOON})
        ray.init(address=made.address)
        yield made
        ray.shutdown()
        made.shutdown()


@pytest.fixture
def doomed(cluster, tmp_path):
    """Id of a second node, and the file that kills it a second after it appears."""
    node, mark = cluster.add_node(**NODE), tmp_path / "mark"
    over = threading.Event()

    def kill():
        while not (mark.exists() or over.is_set()):
            time.sleep(0.01)
        time.sleep(1.0)
        cluster.remove_node(node, allow_graceful=False)

    thread = threading.Thread(target=kill)
    thread.start()
    yield node.node_id, str(mark)
    over.set()
    thread.join()
    assert mark.exists()


def there(node):
    """Whether this task runs on the node; objectives travel whole, and so does this."""
    import ray

    return ray.get_runtime_context().get_node_id() == node


def test_a_study_loses_nothing(cluster, doomed, tmp_path):
    node, mark = doomed

    def objective(x):
        if there(node):
            Path(mark).touch()
            time.sleep(60.0)
        return objectives.peak(x)

    with Study.create(tmp_path / "a.study", {"x": (0.0, 1.0)}, **FIXED) as study:
        study.optimize(objectives.peak, 3)
        told = study.results()
        executor = Counting(RayExecutor())
        study.optimize(objective, 9, executor=executor, workers=2)
        assert study.results()[:3] == told
        assert (study.status().told, study.status().failed, study.status().open) == (9, 0, 0)
        assert all(value == objectives.peak(trial.x) for trial, value in study.results())
        assert len(executor.xs) == 7  # the one that died was handed out again, as it was
        assert len({x["x"] for x in executor.xs}) == 6


@pytest.mark.parametrize("retries", [0, 1])
def test_a_result_that_lay_on_the_dead_node(cluster, doomed, retries):
    """It was never fetched: the study sees a death, or Ray computes it again."""
    node, mark = doomed
    executor = RayExecutor(retries=retries)
    first, second = (executor.submit(large, (node, mark)) for _ in range(2))
    while any(n["Alive"] for n in ray.nodes() if n["NodeID"] == node):
        time.sleep(0.05)
    found = []
    for future in (first, second):
        try:
            found.append(len(future.result()))
        except WorkerLost:
            found.append("lost")
    assert sorted(found, key=str) == ([10**7, 10**7] if retries else [10**7, "lost"])


def large(where):
    """Ten megabytes, which stay on the node."""
    node, mark = where
    if there(node):
        Path(mark).touch()
    while not Path(mark).exists():  # so that the other task goes to the doomed node
        time.sleep(0.05)
    return b"0" * 10**7
