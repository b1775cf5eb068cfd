"""Objects of other frameworks, as they come from them, in Teola; and the other way round."""
