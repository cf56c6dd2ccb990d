"""Files that are made from the controller's code, such as the chart's rules, and those that are made of the chart."""
