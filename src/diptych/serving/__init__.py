"""From a picture and a model folder to words and decisions, without HTTP."""

from diptych.serving.deciding import Chosen, Found, Verdict
from diptych.serving.predictor import Prediction, Predictor, load

__all__ = ["Chosen", "Found", "Prediction", "Predictor", "Verdict", "load"]
