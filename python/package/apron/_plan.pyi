from ._apron import Plan as Plan
