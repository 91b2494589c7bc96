"""One of several processes that train together: its place, how it joins the others, and how it ends with them."""
