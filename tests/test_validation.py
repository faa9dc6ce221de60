import pytest
import torch

from bo_robust.validation import check_accuracy, check_like


def test_check_like():
    x = torch.zeros(2)
    check_like("X", x, "the model", torch.ones(1))
    with pytest.raises(ValueError, match=r"X is torch.float32 on cpu, the model torch.float64 on cpu; convert one of"):
        check_like("X", x, "the model", x.double())
    with pytest.raises(ValueError, match=r"on cpu; call it off\.$"):
        check_like("X", x, "the model", x.double(), "call it off")


@pytest.mark.parametrize("epsilon", [0.0, 1.0, float("nan")])
def test_check_accuracy(epsilon):
    check_accuracy(0.5)
    with pytest.raises(ValueError, match="accuracy of the dictionary"):
        check_accuracy(epsilon)
