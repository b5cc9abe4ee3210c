"""GP classifiers with auxiliary variables: one-vs-each, logistic softmax, least squares, and what they share."""
