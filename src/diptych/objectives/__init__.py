"""Training objectives, one per file. An objective masks inputs and computes the loss of the model's predictions."""

from diptych.objectives.answer import AnswerQuestion
from diptych.objectives.candidates import Candidate, NamedThing, region_of, split_candidates
from diptych.objectives.choose import ChooseText
from diptych.objectives.classify_statement import ClassifyStatement
from diptych.objectives.denoise import Denoise
from diptych.objectives.generate_fragment import GenerateFragment
from diptych.objectives.generate_regions import GenerateRegions
from diptych.objectives.generate_text import GenerateText
from diptych.objectives.ground import GroundExpression
from diptych.objectives.masked_features import MaskedRegionFeature
from diptych.objectives.masked_language import MaskedLanguage
from diptych.objectives.masked_queries import MaskedQueries
from diptych.objectives.masked_regions import MaskedRegionClass
from diptych.objectives.matching import ImageTextMatching
from diptych.objectives.per_pair import SummedByPair
from diptych.objectives.region_contrast import RegionContrast
from diptych.objectives.retrieval import MatchGroups
from diptych.objectives.schedule import Schedule, together
from diptych.objectives.scheduled_sampling import ScheduledSampling, two_pass_c
from diptych.objectives.seen_regions import SeenRegionClass
from diptych.objectives.self_critical import SelfCritical
from diptych.objectives.similarity import Similarity
from diptych.objectives.updates import OneForward

__all__ = [
    "AnswerQuestion",
    "Candidate",
    "ChooseText",
    "ClassifyStatement",
    "Denoise",
    "GenerateFragment",
    "GenerateRegions",
    "GenerateText",
    "GroundExpression",
    "ImageTextMatching",
    "MaskedLanguage",
    "MaskedQueries",
    "MaskedRegionClass",
    "MaskedRegionFeature",
    "MatchGroups",
    "NamedThing",
    "OneForward",
    "RegionContrast",
    "Schedule",
    "ScheduledSampling",
    "SeenRegionClass",
    "SelfCritical",
    "Similarity",
    "SummedByPair",
    "region_of",
    "split_candidates",
    "together",
    "two_pass_c",
]
