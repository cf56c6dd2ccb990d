"""Everything that is made from the types: the CustomResourceDefinition and the API reference."""
