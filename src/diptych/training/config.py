"""How a run trains, as two frozen records: names and numbers only, so that a recipe can save them."""

from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt, model_validator

Share = Annotated[float, Field(ge=0, lt=1)]
NotNegative = Annotated[float, Field(ge=0)]


class OptimizerConfig(BaseModel):
    """The optimizer, its gradient clipping and its schedule; the learning rate is the highest, after warm-up."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["adamw", "adam", "sgd", "bert_adam", "muon"] = "adamw"
    lr: PositiveFloat = 1e-4
    betas: tuple[Share, Share] = (0.9, 0.999)
    eps: NotNegative = 1e-8
    momentum: Share = 0.9  # of sgd
    weight_decay: NotNegative = 0.0  # decoupled for adamw, bert_adam and muon, L2 for adam and sgd
    decay_biases_and_norms: bool = False
    lr_multipliers: dict[str, NotNegative] = Field(default_factory=dict)  # prefix of parameter names -> times the rate

    # Of muon alone: how the names of the weights begin that it turns; the rest takes adamw.
    muon_params: tuple[str, ...] = ()

    clip: PositiveFloat | None = None  # norm of all gradients together
    clip_each: PositiveFloat | None = None  # norm of each parameter's gradient (BERT's code)
    clip_value: PositiveFloat | None = None  # every number by itself (TDEN's captioner)

    schedule: Literal["constant", "linear", "inverse_sqrt", "step", "cosine"] = "linear"
    warmup_steps: Annotated[int, Field(ge=0)] | None = None
    warmup_share: Share | None = None  # of all steps
    warmup_from_zero: bool = False  # the first step has rate 0, as in BERT's code
    milestones: tuple[PositiveInt, ...] = ()  # step: the rate falls after so many steps
    decay_every: PositiveInt | None = None  # step: instead of milestones
    gamma: PositiveFloat = 0.1  # step: times this
    lr_times_batch: bool = False  # the rate is for a batch of one (VL-BERT's code)

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        if self.warmup_steps is not None and self.warmup_share is not None:
            raise ValueError("warmup_steps and warmup_share exclude each other: give one")
        if sum(c is not None for c in (self.clip, self.clip_each, self.clip_value)) > 1:
            raise ValueError("clip, clip_each and clip_value exclude each other: give one")
        if self.kind == "muon" and not self.muon_params:
            raise ValueError("kind=muon wants muon_params, how the names of its weights begin")
        falls = bool(self.milestones), self.decay_every is not None
        if self.schedule == "step" and sum(falls) != 1:
            raise ValueError("the step schedule wants either milestones or decay_every")
        if self.schedule != "step" and any(falls):
            raise ValueError(f"milestones and decay_every belong to the step schedule, not to {self.schedule}")
        return self


class TrainingConfig(BaseModel):
    """How long, on what, how often saved and how the best weights are chosen."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    steps: PositiveInt
    batch: PositiveInt  # samples of one step, over all processes
    micro_batch: PositiveInt | None = None  # samples of one forward pass at most; None: the whole batch
    seed: int = 0
    device: str = "auto"
    precision: Literal["fp32", "bf16"] = "fp32"
    threads: PositiveInt | None = None  # of torch; None leaves them
    loading_threads: Annotated[int, Field(ge=0)] = 1  # that make batches ahead; 0: the training thread itself
    distributed: Literal["ddp", "fsdp"] = "ddp"  # under torchrun only

    log_every: PositiveInt = 10
    tensorboard: bool = False
    checkpoint_every: PositiveInt = 500
    keep: PositiveInt = 2  # the latest checkpoints; the best come on top

    ema: Annotated[float, Field(gt=0, lt=1)] | None = None  # decay of the running average of the weights
    validate_every: PositiveInt | None = None
    average_best: PositiveInt = 1  # final weights: the mean of so many best; 1 takes the best
    patience: PositiveInt | None = None  # stop after so many validations without a rise

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        if self.validate_every is None and (self.patience is not None or self.average_best > 1):
            raise ValueError("patience and average_best choose by validation: give validate_every")
        return self

    def accumulation(self, world: int) -> int:
        """How many micro-batches each of `world` processes computes for one step."""
        return -(-self.batch // ((self.micro_batch or self.batch) * world)) if self.micro_batch else 1
