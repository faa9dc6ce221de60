from contextlib import contextmanager

from bo_robust.utils.shared import Shared


def test_the_last_to_leave_ends_what_the_first_began():
    events = []

    @contextmanager
    def recorded():
        events.append("begin")
        yield
        events.append("end")

    shared = Shared(recorded)
    first, second = shared(), shared()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert events == ["begin"]
    second.__exit__(None, None, None)
    with shared():
        assert events == ["begin", "end", "begin"]
    assert events == ["begin", "end", "begin", "end"]
