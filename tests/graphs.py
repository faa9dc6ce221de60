"""CUDA graphs on a CPU: the operations of some work are recorded without effect, and run again for each replay."""

from functools import partial

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

from tests.bandits.problems import READS


class Graph(TorchDispatchMode):
    """Records operations with the memory they meet; what they wrote is put back, as a capture runs nothing."""

    def __init__(self):
        super().__init__()
        self.calls, self.made, self.before = [], set(), {}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        assert func.overloadpacket.__name__ not in READS | {"lift_fresh"}, f"{func} waits for the device"
        for i, argument in enumerate(func._schema.arguments):
            value = args[i] if i < len(args) else kwargs.get(argument.name)
            if argument.is_write and place(value) not in self.made:
                self.before.setdefault(place(value), (value.untyped_storage(), value.untyped_storage().clone()))
        result = func(*args, **kwargs)
        known = {place(x) for x in tensors((args, kwargs))}
        new = [place(x) not in known for x in tensors(result)]
        self.made.update(place(x) for x in tensors(result) if place(x) not in known)
        self.calls.append((func, args, kwargs, tensors(result), new))
        return result

    def replay(self):
        """Run everything again, from NaN wherever a number was computed."""
        computed = [x for *_, outputs, new in self.calls for x, own in zip(outputs, new, strict=True) if own]
        for x in computed:
            x.fill_(torch.nan if x.is_floating_point() else 1)
        for func, args, kwargs, outputs, new in self.calls:
            for x, again, own in zip(outputs, tensors(func(*args, **kwargs)), new, strict=True):
                if own:
                    x.copy_(again)

    def said(self, state):
        """Operations, numbers and shapes, and which of the tensors of a state they meet."""
        fixed = {place(x) for x in state}

        def of(x):
            return x.dtype, x.shape, x.stride(), x.storage_offset(), place(x) if place(x) in fixed else None

        return [repr((func, tree_map_only(torch.Tensor, of, (args, kwargs)))) for func, args, kwargs, *_ in self.calls]


def place(x):
    return x.untyped_storage().data_ptr()


def tensors(tree):
    return [x for x in tree_leaves(tree) if isinstance(x, torch.Tensor)]


class Graphs:
    """In place of CUDA's graphs."""

    def __init__(self):
        self.graphs, self.replays = [], 0

    def __call__(self, device, work):
        with Graph() as graph:
            work()
        for storage, before in graph.before.values():
            storage.copy_(before)
        self.graphs.append(graph)
        return partial(self.replay, graph)

    def replay(self, graph):
        self.replays += 1
        graph.replay()
