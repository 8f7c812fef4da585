"""Double of isaacgym.gymtorch: tensors handed over without copies. A handle does not keep its tensor alive."""

import weakref

import torch
from isaacgym import Violation


class Handle:
    """What setters take: a weak reference, as the real one holds an address."""

    def __init__(self, tensor):
        self.ref = weakref.ref(tensor)
        self.shape, self.dtype = tuple(tensor.shape), tensor.dtype

    def array(self):
        tensor = self.ref()
        if tensor is None:
            raise Violation("a tensor given to a setter is gone: Isaac Gym reads freed memory")
        return tensor.numpy()


def unwrap_tensor(tensor):
    """A handle of a torch tensor."""
    if not tensor.is_contiguous():
        raise Violation("unwrap_tensor: the tensor is not contiguous")
    if tensor.dtype not in (torch.float32, torch.int32):
        raise Violation(f"unwrap_tensor: {tensor.dtype}; Isaac Gym takes float32 and, of actor indices, int32")
    return Handle(tensor)


def wrap_tensor(buffer):
    """A torch view of what an acquire function returned."""
    return torch.from_numpy(buffer.array)
