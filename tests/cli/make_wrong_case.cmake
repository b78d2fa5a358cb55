# Copies CASE to the folder TO with the expected output of the case OUTPUT_OF.
file(REMOVE_RECURSE ${TO})
file(COPY ${CASE} DESTINATION ${TO})
get_filename_component(name ${CASE} NAME)
file(COPY_FILE ${OUTPUT_OF}/test_data_set_0/output_0.pb ${TO}/${name}/test_data_set_0/output_0.pb)  # COPY skips files of one age
