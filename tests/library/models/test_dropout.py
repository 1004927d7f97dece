import pytest
import torch

from diptych.models.dropout import Dropout


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("rate", [0.1, 0.5])
def test_drops_at_its_rate_and_keeps_the_expectation(dtype, rate):
    torch.manual_seed(0)
    dropped = Dropout(rate)(torch.ones(500, 400, dtype=dtype)).double()
    assert float((dropped == 0).double().mean()) == pytest.approx(rate, abs=0.003)  # 4 standard deviations
    assert float(dropped[dropped != 0].mean()) == pytest.approx(1 / (1 - rate), rel=4e-3)  # bfloat16 has 8 bits
    # Neighbours share 64 random bits: the lag correlations must still vanish.
    kept = (dropped != 0).double().flatten() - (1 - rate)
    for lag in (1, 2, 3, 4, 400):
        assert abs(float((kept[lag:] * kept[:-lag]).mean())) < 0.003 * rate * 4


def test_seed_decides_and_calls_differ():
    dropout, x = Dropout(0.3), torch.ones(1000)
    torch.manual_seed(7)
    first, second = dropout(x), dropout(x)
    torch.manual_seed(7)
    assert torch.equal(dropout(x), first)
    assert not torch.equal(first, second)


def test_gradient_passes_where_the_value_did():
    x = torch.randn(33, 7, requires_grad=True)
    y = Dropout(0.4)(x)
    y.sum().backward()
    torch.testing.assert_close(x.grad, (y / x).detach())


def test_off_when_evaluating_or_at_rate_0():
    x = torch.randn(10)
    assert Dropout(0.5).eval()(x) is x
    assert Dropout(0.0)(x) is x
