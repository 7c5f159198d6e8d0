-- _time: times as numbers.

-- Returns the µs since 1970, as digits, of a UTC text: `YYYY-MM-DDTHH:MM:SS`, an optional fraction of a second, an
-- optional `Z`. Source: Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms", days_from_civil
local function micros_of(text)
  local year, month, day, hour, minute, second, fraction =
    string.match(text, '^(%d+)-(%d+)-(%d+)T(%d+):(%d+):(%d+)%.?(%d*)')
  local shifted = month > '02' and year or year - 1
  local of_era = shifted % 400
  local of_year = math.floor((153 * ((month + 9) % 12) + 2) / 5) + day - 1
  local days = math.floor(shifted / 400) * 146097 + of_era * 365 + math.floor(of_era / 4) - math.floor(of_era / 100)
    + of_year - 719468
  local seconds = days * 86400 + hour * 3600 + minute * 60 + second
  return string.format('%.0f', seconds * 1000000 + string.sub(fraction .. '000000', 1, 6))
end
