import pytest
import torch
from torch import nn

from diptych.models import transformer
from diptych.models.transformer import LayerSizes, Transformer

SIZES = LayerSizes(width=24, heads=3, ffn=40, dropout=0.0, attention_dropout=0.0, norm_eps=1e-5)


def test_equals_torchs_post_norm_encoder():
    torch.manual_seed(0)
    ours = Transformer(SIZES, 2)
    layer = nn.TransformerEncoderLayer(24, 3, 40, 0.0, nn.functional.gelu, 1e-5, batch_first=True, norm_first=False)
    theirs = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    for mine, other in zip(ours.layers, theirs.layers, strict=True):
        other.self_attn.in_proj_weight.data = mine.attention.qkv.weight.data
        other.self_attn.in_proj_bias.data = mine.attention.qkv.bias.data
        for name, part in (
            ("self_attn.out_proj", mine.attention.out),
            ("linear1", mine.inner),
            ("linear2", mine.outer),
            ("norm1", mine.attention_norm),
            ("norm2", mine.norm),
        ):
            nn.init.normal_(part.weight)
            nn.init.normal_(part.bias)
            other.get_submodule(name).load_state_dict(part.state_dict())
    x, allowed = torch.randn(2, 5, 24), torch.rand(2, 5, 5) > 0.4
    allowed |= torch.eye(5, dtype=torch.bool)
    states = ours(x, allowed)
    assert len(states) == 3
    assert states[0] is x
    torch.testing.assert_close(states[-1], theirs(x, mask=~allowed.repeat_interleave(3, 0)), atol=2e-5, rtol=1e-5)


def test_both_dropouts_are_at_work():
    x, allowed = torch.randn(2, 5, 24), torch.ones(2, 5, 5, dtype=torch.bool)
    for rates in ({"dropout": 0.5}, {"attention_dropout": 0.5}):
        sizes = LayerSizes(**{**SIZES.__dict__, **rates})
        layer = Transformer(sizes, 1)
        assert not torch.equal(layer(x, allowed)[1], layer(x, allowed)[1])
        layer.eval()
        assert torch.equal(layer(x, allowed)[1], layer(x, allowed)[1])


def test_beside_a_fused_kernel_the_mask_is_cast_once_for_all_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transformer, "FUSED", ("cpu",))
    stack, given = Transformer(SIZES, 3), []
    for layer in stack.layers:
        layer.register_forward_pre_hook(lambda _layer, parts: given.append(parts[1]))
    allowed = torch.ones(2, 8, 8, dtype=torch.bool).tril()
    with torch.autocast("cpu", torch.bfloat16):
        stack(torch.randn(2, 8, SIZES.width), allowed)
    assert {one.data_ptr() for one in given} == {given[0].data_ptr()}
    assert given[0].dtype == torch.bfloat16
    assert torch.equal(given[0][:, 0] == 0, allowed)


@pytest.mark.parametrize(("positions", "cudnn"), [(56, True), (64, False), (72, True), (128, True), (192, False)])
def test_cudnn_is_not_asked_where_its_backward_gives_nan(
    positions: int, cudnn: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transformer, "FUSED", ("cpu",))
    allowed, fused = [], nn.functional.scaled_dot_product_attention

    def attention(*given: object) -> torch.Tensor:
        allowed.append((torch.backends.cuda.cudnn_sdp_enabled(), torch.backends.cuda.mem_efficient_sdp_enabled()))
        return fused(*given)

    monkeypatch.setattr(transformer.F, "scaled_dot_product_attention", attention)
    Transformer(SIZES, 1)(torch.randn(2, positions, 24), torch.ones(2, positions, positions, dtype=torch.bool))
    assert allowed == [(cudnn, True)]
    assert torch.backends.cuda.cudnn_sdp_enabled()
