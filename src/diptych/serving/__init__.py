"""From a picture and a model folder to words, without HTTP."""

from diptych.serving.predictor import Prediction, Predictor, load
from diptych.serving.search import Hit, Searched

__all__ = ["Hit", "Prediction", "Predictor", "Searched", "load"]
