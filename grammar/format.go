package grammar

import "fmt"

// Every day of the calendar, with the 29th of February in leap years (RFC 3339).
const (
	dateRule = `[0-9]{4} "-" (("0" [13578] | "10" | "12") "-" ("0" [1-9] | [12] [0-9] | "3" [01])` +
		` | ("0" [469] | "11") "-" ("0" [1-9] | [12] [0-9] | "30") | "02-" ("0" [1-9] | "1" [0-9] | "2" [0-8]))` +
		` | ([0-9] [0-9] ("0" [48] | [2468] [048] | [13579] [26]) | ([02468] [048] | [13579] [26]) "00") "-02-29"`
	timeRule = `([01] [0-9] | "2" [0-3]) ":" [0-5] [0-9] ":" [0-5] [0-9] ("." [0-9]{1,9})? ("Z" | [+-] ([01] [0-9] | "2" [0-3]) ":" [0-5] [0-9])`
)

// format returns the expression of what stands between the quotes of a string
// of a format.
func (c *converter) format(name string) (string, error) {
	switch name {
	case "date", "time":
		return c.use(name), nil
	case "date-time":
		return c.use("date") + ` "T" ` + c.use("time"), nil
	case "uuid":
		return `[0-9a-fA-F]{8} "-" ([0-9a-fA-F]{4} "-"){3} [0-9a-fA-F]{12}`, nil
	case "ipv4":
		c.use("octet")
		return `octet ("." octet){3}`, nil
	case "email":
		c.use("email-atom")
		c.use("email-label")
		return `email-atom ("." email-atom)? "@" email-label ("." email-label){1,3}`, nil
	}
	return "", fmt.Errorf("the format %s is not supported: want date, time, date-time, uuid, ipv4 or email", name)
}
