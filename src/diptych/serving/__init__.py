"""From a picture and a model folder to words and decisions, without HTTP."""

from diptych.serving.deciding import Chosen, Found, Verdict
from diptych.serving.predictor import Prediction, Predictor, load
from diptych.serving.search import Hit, Searched

__all__ = ["Chosen", "Found", "Hit", "Prediction", "Predictor", "Searched", "Verdict", "load"]
