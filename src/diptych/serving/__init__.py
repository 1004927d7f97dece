"""From a picture and a model folder to words, without HTTP."""

from diptych.serving.predictor import Prediction, Predictor, load

__all__ = ["Prediction", "Predictor", "load"]
