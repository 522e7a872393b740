package grammar

// Forget empties the cache of a matcher.
func Forget(m *Matcher) { m.m.forget() }
