# Stub of Vivado: accepts the commands of flows and constraints with the options that UG835 (2024.1) documents, checks
# files and order, and writes reports in Vivado's layout. It refuses unknown commands and options. If $RECORD is set, it
# writes the commands to that file.

set here [file dirname [file normalize [info script]]]

# Options, 1 for those with a value; then the fewest and the most other words.
set commands {
    read_verilog {{-library 1 -sv 0} 1 1000}
    read_xdc {{-cells 1 -ref 1 -quiet_diff_pairs 0 -mode 1 -unmanaged 0 -no_add 0} 1 1}
    synth_design {{
        -name 1 -part 1 -constrset 1 -top 1 -include_dirs 1 -generic 1 -define 1 -verilog_define 1 -vhdl_define 1
        -flatten_hierarchy 1 -gated_clock_conversion 1 -directive 1 -rtl 0 -lint 0 -file 1 -bufg 1 -no_lc 0
        -lut_cascade 0 -shreg_min_size 1 -mode 1 -fsm_extraction 1 -rtl_skip_mlo 0 -rtl_skip_ip 0
        -rtl_skip_constraints 0 -srl_style 1 -keep_equivalent_registers 0 -resource_sharing 1 -cascade_dsp 1
        -control_set_opt_threshold 1 -incremental_mode 1 -max_bram 1 -max_uram 1 -max_dsp 1
        -max_bram_cascade_height 1 -max_uram_cascade_height 1 -global_retiming 1 -no_srlextract 0 -assert 0
        -no_timing_driven 0 -sfcu 0 -debug_log 0} 0 0}
    opt_design {{
        -retarget 0 -propconst 0 -sweep 0 -bram_power_opt 0 -remap 0 -aggressive_remap 0 -resynth_area 0
        -resynth_seq_area 0 -directive 1 -muxf_remap 0 -hier_fanout_limit 1 -bufg_opt 0 -shift_register_opt 0
        -dsp_register_opt 0 -srl_remap_modes 1 -control_set_merge 0 -merge_equivalent_drivers 0 -carry_remap 0
        -debug_log 0 -property_opt_only 0} 0 0}
    place_design {{
        -directive 1 -no_timing_driven 0 -timing_summary 0 -unplace 0 -post_place_opt 0 -no_psip 0 -no_bufg_opt 0} 0 0}
    phys_opt_design {{
        -fanout_opt 0 -placement_opt 0 -routing_opt 0 -slr_crossing_opt 0 -rewire 0 -insert_negative_edge_ffs 0
        -critical_cell_opt 0 -dsp_register_opt 0 -bram_register_opt 0 -uram_register_opt 0 -bram_enable_opt 0
        -shift_register_opt 0 -hold_fix 0 -aggressive_hold_fix 0 -retime 0 -force_replication_on_nets 1 -directive 1
        -critical_pin_opt 0 -clock_opt 0 -path_groups 1 -tns_cleanup 0 -sll_reg_hold_fix 0} 0 0}
    route_design {{
        -unroute 0 -release_memory 0 -nets 1 -physical_nets 0 -pins 1 -directive 1 -tns_cleanup 0 -no_timing_driven 0
        -preserve 0 -delay 0 -auto_delay 0 -max_delay 1 -min_delay 1 -timing_summary 0 -finalize 0 -ultrathreads 0
        -eco 0} 0 0}
    report_utilization {{
        -file 1 -append 0 -pblocks 1 -evaluate_pblock 0 -exclude_child_pblocks 0 -exclude_non_assigned 0 -cells 1
        -return_string 0 -slr 0 -packthru 0 -name 1 -no_primitives 0 -omit_locs 0 -hierarchical 0 -spreadsheet_file 1
        -spreadsheet_table 1 -spreadsheet_depth 1 -hierarchical_depth 1 -hierarchical_percentages 0} 0 0}
    report_timing_summary {{
        -check_timing_verbose 0 -delay_type 1 -no_detailed_paths 0 -setup 0 -hold 0 -max_paths 1 -nworst 1
        -unique_pins 0 -path_type 1 -no_reused_label 0 -input_pins 0 -no_pblock 0 -routable_nets 0
        -slack_lesser_than 1 -report_unconstrained 0 -significant_digits 1 -no_header 0 -file 1 -append 0 -name 1
        -return_string 0 -warn_on_violation 0 -datasheet 0 -cells 1 -rpx 1} 0 0}
    report_power {{
        -no_propagation 0 -hier 1 -hierarchical_depth 1 -vid 0 -advisory 0 -file 1 -name 1 -format 1 -xpe 1 -l 1
        -return_string 0 -append 0 -rpx 1} 0 0}
    write_checkpoint {{-force 0 -cell 1 -logic_function_stripped 0 -encrypt 0 -key 1 -incremental_synth 0} 0 1}
    create_project {{-part 1 -force 0 -in_memory 0 -ip 0 -rtl_kernel 0} 0 2}
    add_files {{-fileset 1 -norecurse 0 -copy_to 1 -force 0 -scan_for_includes 0} 0 1}
    current_fileset {{-constrset 0 -simset 0 -blockset 0 -srcset 0} 0 1}
    set_property {{-name 1 -value 1 -dict 1 -regexp 0} 3 3}
    update_compile_order {{-force_gui 0 -fileset 1} 0 0}
    close_project {{-delete 0} 0 0}
    ipx::package_project {{
        -root_dir 1 -vendor 1 -library 1 -name 1 -version 1 -taxonomy 1 -import_files 0 -set_current 1 -force 0
        -force_update_compile_order 0 -archive_source_project 1 -module 1 -generated_files 0} 0 1}
    ipx::current_core {{} 0 1}
    ipx::associate_bus_interfaces {{-busif 1 -clock 1 -reset 1 -clear 0 -remove 0} 1 1}
    ipx::create_xgui_files {{-logo_file 1} 0 1}
    ipx::update_checksums {{} 1 1}
    ipx::save_core {{} 0 1}
    package_xo {{
        -kernel_name 1 -force 0 -kernel_xml 1 -output_kernel_xml 1 -design_xml 1 -ip_directory 1 -parent_ip_directory 1
        -kernel_files 1 -kernel_xml_args 1 -kernel_xml_pipes 1 -kernel_xml_connections 1 -ctrl_protocol 1 -xo_path 1} 0 0}
}
set constraints {
    create_clock {{-period 1 -name 1 -waveform 1 -add 0} 0 1}
    get_ports {{
        -regexp 0 -nocase 0 -filter 1 -of_objects 1 -match_style 1 -scoped_to_current_instance 0 -no_traverse 0
        -prop_thru_buffers 0} 0 1}
    get_clocks {{-regexp 0 -nocase 0 -filter 1 -of_objects 1 -match_style 1 -include_generated_clocks 0} 0 1}
    set_max_delay {{
        -rise 0 -fall 0 -reset_path 0 -from 1 -rise_from 1 -fall_from 1 -to 1 -rise_to 1 -fall_to 1 -through 1
        -rise_through 1 -fall_through 1 -datapath_only 0} 1 1}
}
set values {
    -flatten_hierarchy {full none rebuilt}
    -mode {default out_of_context}
}
# Required previous command of each command.
set after {
    synth_design read_verilog opt_design synth_design place_design opt_design phys_opt_design place_design
    route_design place_design report_utilization synth_design report_timing_summary synth_design
    report_power synth_design write_checkpoint synth_design
    add_files create_project current_fileset create_project update_compile_order add_files
    ipx::package_project update_compile_order ipx::current_core ipx::package_project
    ipx::save_core ipx::update_checksums close_project ipx::save_core package_xo close_project
}
set done {}
set sources {}
set rules {}
set clocks {}

proc refuse {message} {
    puts stderr "ERROR: \[Recorder 1-1\] $message"
    error $message
}

# Parse the options and other words of a call.
proc understood {table command words} {
    lassign [dict get $table $command] known fewest most
    dict set known -quiet 0
    dict set known -verbose 0
    set options {}
    set rest {}
    while {[llength $words]} {
        set words [lassign $words word]
        if {![string match -* $word] || [string is double -strict $word]} {
            lappend rest $word
        } elseif {![dict exists $known $word]} {
            refuse "$command has no option '$word'"
        } elseif {![dict get $known $word]} {
            dict set options $word 1
        } elseif {![llength $words]} {
            refuse "$command $word has no value"
        } else {
            set words [lassign $words value]
            if {[dict exists $::values $word] && $value ni [dict get $::values $word]} {
                refuse "$command $word cannot be '$value'"
            }
            dict set options $word $value
        }
    }
    if {[llength $rest] < $fewest || [llength $rest] > $most} {
        refuse "$command does not take [llength $rest] words: $rest"
    }
    return [list $options $rest]
}

proc record {words} {
    if {[info exists ::env(RECORD)]} {
        set file [open $::env(RECORD) a]
        puts $file $words
        close $file
    }
}

proc text {path} {
    set file [open $path]
    set text [read $file]
    close $file
    return $text
}

# Define each command of the flow, then the effects of some.
namespace eval ipx {}
foreach command [dict keys $commands] {
    proc $command {args} [format {
        lassign [understood $::commands %1$s $args] options rest
        record [list %1$s {*}$args]
        puts "Command: %1$s $args"
        if {[dict exists $::after %1$s] && [dict get $::after %1$s] ni $::done} {
            refuse "%1$s comes after [dict get $::after %1$s]"
        }
        lappend ::done %1$s
        if {[info commands do_%2$s] ne ""} {return [do_%2$s $options $rest]}
    } $command [string map {:: _} $command]]
}

proc do_read_verilog {options rest} {
    foreach file [concat {*}$rest] {
        if {![file isfile $file]} {refuse "File '$file' does not exist"}
        lappend ::sources $file
    }
}

proc do_read_xdc {options rest} {
    foreach file [concat {*}$rest] {
        if {![file isfile $file]} {refuse "File '$file' does not exist"}
        lappend ::rules $file
    }
}

# Constraints are read when there is a design for them.
proc do_synth_design {options rest} {
    foreach option {-top -part} {
        if {![dict exists $options $option]} {refuse "synth_design has no $option"}
    }
    if {![string match xc?* [dict get $options -part]]} {refuse "no part '[dict get $options -part]'"}
    if {[dict exists $options -max_dsp] && ![string is integer -strict [dict get $options -max_dsp]]} {
        refuse "-max_dsp is no number"
    }
    set ::ports [ports [dict get $options -top]]
    foreach file $::rules {
        set child [interp create -safe]
        foreach command [dict keys $::constraints] {
            interp alias $child $command {} constrain $command
        }
        interp eval $child [text $file]
        interp delete $child
    }
}

# Names of the ports of a module, with all bits of a bus.
proc ports {top} {
    set names {}
    set inside 0
    foreach file $::sources {
        foreach line [split [text $file] \n] {
            if {[string match "module *" $line]} {
                set inside [expr {[string trimleft [lindex [split [string range $line 7 end] "( "] 0] \\] eq $top}]
                set found [expr {[info exists found] || $inside ? 1 : 0}]
            } elseif {$inside && [regexp {^\s*(?:input|output)\s+(\[\d+:\d+\]\s+)?\\?([^\s;]+)\s*;} $line -> bus name]} {
                lappend names [expr {$bus eq "" ? $name : "$name\[*\]"}]
            }
        }
    }
    if {![llength $names]} {refuse "there is no module '$top' with ports"}
    return $names
}

# Kernels. A core consists of the ports of its top module; ports of a bus share a prefix.
proc do_create_project {options rest} {
    if {[llength $rest] > 1} {file mkdir [lindex $rest 1]}
}

proc do_add_files {options rest} {do_read_verilog $options $rest}

proc do_current_fileset {options rest} {return sources_1}

proc do_set_property {options rest} {
    lassign $rest name value object
    if {$object ni {sources_1 core}} {refuse "set_property: there is no object '$object'"}
    set ::properties($object,$name) $value
}

proc do_ipx_package_project {options rest} {
    if {![info exists ::properties(sources_1,top)]} {refuse "there is no top module"}
    set ::ports [ports $::properties(sources_1,top)]
    set ::core [dict get $options -root_dir]
    file mkdir $::core
}

proc do_ipx_current_core {options rest} {return core}

proc do_ipx_associate_bus_interfaces {options rest} {
    set bus [dict get $options -busif]
    set channels 0
    foreach {address data} {AWADDR WDATA ARADDR RDATA} {
        set found [expr {[lsearch -nocase $::ports ${bus}_$address*] >= 0}]
        if {$found != [lsearch -nocase $::ports ${bus}_$data*] >= 0} {refuse "bus interface '$bus' has half a channel"}
        incr channels $found
    }
    if {!$channels} {refuse "bus interface '$bus' has no channel of its own"}
    if {[dict get $options -clock] ni $::ports} {refuse "there is no clock '[dict get $options -clock]'"}
    lappend ::buses $bus
}

proc do_ipx_save_core {options rest} {
    close [open [file join $::core component.xml] w]
}

proc do_package_xo {options rest} {
    foreach option {-kernel_name -xo_path} {
        if {![dict exists $options $option]} {refuse "package_xo has no $option"}
    }
    foreach property {sdx_kernel sdx_kernel_type} wanted {true rtl} {
        if {![info exists ::properties(core,$property)] || $::properties(core,$property) ne $wanted} {
            refuse "the core is no kernel: $property is not $wanted"
        }
    }
    foreach port $::ports {
        set prefixes [lmap bus $::buses {expr {[string match -nocase ${bus}_* $port] ? $bus : [continue]}}]
        if {![llength $prefixes] && $port ni {ap_clk ap_rst_n interrupt}} {
            refuse "When packaging for Vitis, pins that are not part of an interface are not supported: $port"
        }
    }
    if {![file isfile [file join [dict get $options -ip_directory] component.xml]]} {refuse "there is no packaged core"}
    set description [text [dict get $options -kernel_xml]]
    if {![string match "*<kernel name=\"[dict get $options -kernel_name]\"*" $description]} {
        refuse "the description is of another kernel"
    }
    close [open [dict get $options -xo_path] w]
}

proc constrain {command args} {
    lassign [understood $::constraints $command $args] options rest
    record [list $command {*}$args]
    switch $command {
        get_ports {
            foreach name [lindex $rest 0] {
                if {$name ni $::ports} {refuse "no ports matched '$name'; there are $::ports"}
            }
            return [lindex $rest 0]
        }
        get_clocks {
            foreach name [lindex $rest 0] {
                if {$name ni $::clocks} {refuse "no clocks matched '$name'; there are $::clocks"}
            }
            return [lindex $rest 0]
        }
        create_clock {
            if {![string is double -strict [dict get $options -period]]} {refuse "-period is no number"}
            lappend ::clocks [dict get $options -name]
        }
        set_max_delay {
            if {![string is double -strict [lindex $rest 0]]} {refuse "'[lindex $rest 0]' is no delay"}
            if {[dict exists $options -datapath_only] && ![dict exists $options -from]} {
                refuse "set_max_delay -datapath_only needs -from"
            }
        }
    }
    return
}

foreach {command report} {
    report_utilization utilization.rpt
    report_timing_summary timing.rpt
    report_power power.rpt
} {
    proc do_$command {options rest} [format {
        file copy -force [file join $::here %s] [dict get $options -file]
    } $report]
}

# The worst path has the slack $SLACK, or 0.
proc get_timing_paths {args} {
    if {$args ne "-delay_type max -max_paths 1"} {refuse "unexpected options: $args"}
    return path
}
proc get_property {name object} {
    if {"$name $object" ne "SLACK path"} {refuse "unexpected property: $name of $object"}
    return [expr {[info exists ::env(SLACK)] ? $::env(SLACK) : 0.0}]
}

proc do_write_checkpoint {options rest} {
    if {[file exists [lindex $rest 0]] && ![dict exists $options -force]} {refuse "there is a checkpoint already"}
    close [open [lindex $rest 0] w]
}

# Options of the program.
set words $argv
set script ""
while {[llength $words]} {
    set words [lassign $words word]
    switch -- $word {
        -mode {
            set words [lassign $words mode]
            if {$mode ne "batch"} {refuse "this is for -mode batch, not $mode"}
        }
        -source {set words [lassign $words script]}
        -nolog - -nojournal {}
        default {refuse "vivado has no option '$word'"}
    }
}
puts "****** Vivado, as the tests know it ******"
# Like Vivado in batch mode, exit with 1 after an error in the script.
if {[catch {uplevel #0 [list source $script]} message]} {
    puts stderr "ERROR: $message"
    exit 1
}
exit 0
