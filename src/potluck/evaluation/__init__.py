"""``potluck evaluate``: what a model can do as it is, and whether another can do more.

request.py     what is to be evaluated, on what: options, a recipe, a run's folder
ask.py         loads the models one after the other, and has them answer
measures.py    from graded answers to accuracy, pass@k and their comparison
accuracy.py    estimates and intervals: numbers only
"""

from potluck.evaluation.ask import evaluate_models, require_writable, write_report
from potluck.evaluation.request import Request

__all__ = ["Request", "evaluate_models", "require_writable", "write_report"]
